// The names of quantisations on the command line and in files.
#include "base/message.h"
#include "halftone/quantize.h"

namespace halftone {

namespace {

struct NamedQuantization {
  const char* name;
  Format format;
  int64_t block_rows, block_cols;  // -1: the default
  bool asymmetric = false;
  Ue8m0Rounding rounding = Ue8m0Rounding::up;
};
constexpr Ue8m0Rounding kDown = Ue8m0Rounding::down;
constexpr NamedQuantization kNames[] = {
    {"nvfp4", Format::nvfp4, -1, -1},
    {"mxfp8", Format::mxfp8, -1, -1},
    {"mxfp8_down", Format::mxfp8, -1, -1, false, kDown},
    {"mxfp6", Format::mxfp6, -1, -1},
    {"mxfp6_down", Format::mxfp6, -1, -1, false, kDown},
    {"mxfp6_e3m2", Format::mxfp6_e3m2, -1, -1},
    {"mxfp6_e3m2_down", Format::mxfp6_e3m2, -1, -1, false, kDown},
    {"mxfp4", Format::mxfp4, -1, -1},
    {"mxfp4_down", Format::mxfp4, -1, -1, false, kDown},
    {"fp8", Format::fp8_e4m3, -1, -1},
    {"fp8_tensor", Format::fp8_e4m3, 0, 0},
    {"fp8_row", Format::fp8_e4m3, 1, 0},
    {"fp8_1x128", Format::fp8_e4m3, 1, 128},
    {"fp8_e5m2", Format::fp8_e5m2, -1, -1},
    {"fp8_e5m2_tensor", Format::fp8_e5m2, 0, 0},
    {"fp8_e5m2_row", Format::fp8_e5m2, 1, 0},
    {"fp8_e5m2_1x128", Format::fp8_e5m2, 1, 128},
    {"int8", Format::int8, -1, -1},
    {"int8_g32", Format::int8, 1, 32},
    {"int8_g64", Format::int8, 1, 64},
    {"int8_g128", Format::int8, 1, 128},
    {"int4", Format::int4, -1, -1},
    {"int4_g64", Format::int4, 1, 64},
    {"int4_g128", Format::int4, 1, 128},
    {"int4_asym", Format::int4, -1, -1, true},
    {"int4_g64_asym", Format::int4, 1, 64, true},
    {"int4_g128_asym", Format::int4, 1, 128, true},
};
constexpr std::string_view kAdaptive = "_adaptive";

QuantizeOptions options_of(const NamedQuantization& row) {
  QuantizeOptions options(row.format);
  if (row.block_rows >= 0) {
    options.scaling.block_rows = row.block_rows;
    options.scaling.block_cols = row.block_cols;
  }
  options.scaling.asymmetric = row.asymmetric;
  options.ue8m0 = row.rounding;
  return options;
}

}  // namespace

QuantizeOptions parse_quantization(std::string_view text) {
  std::string_view base = text;
  const bool adaptive = base.ends_with(kAdaptive);
  if (adaptive) base.remove_suffix(kAdaptive.size());
  for (const NamedQuantization& row : kNames) {
    if (base != row.name) continue;
    QuantizeOptions options = options_of(row);
    options.adaptive = adaptive;
    return options;
  }
  const std::string suggestion = nearest(base, quantization_names());
  fail(ErrorCode::invalid_argument, "quantization \"", text, "\" is not known; the nearest is \"",
       suggestion, adaptive ? kAdaptive : "", "\"");
}

std::string to_string(const QuantizeOptions& options) {
  const std::string suffix(options.adaptive ? kAdaptive : "");
  for (const NamedQuantization& row : kNames) {
    const QuantizeOptions named = options_of(row);
    // How powers of two are rounded matters only where there are some.
    const bool same_rounding =
        named.ue8m0 == options.ue8m0 || options.scaling.format != Format::ue8m0;
    if (named.format == options.format && named.scaling == options.scaling && same_rounding) {
      return row.name + suffix;
    }
  }
  return concat(name(options.format), suffix, " (", to_string(options.scaling), ")");
}

std::vector<std::string> quantization_names() {
  std::vector<std::string> names;
  for (const NamedQuantization& row : kNames) names.emplace_back(row.name);
  return names;
}

}  // namespace halftone

#include "halftone/dtype.h"

#include <vector>

#include "base/format_traits.h"
#include "base/message.h"

namespace halftone {

namespace {

struct FormatRow {
  Format format;
  const char* name;
};
constexpr FormatRow kRows[] = {
#define HALFTONE_X(name, ...) {Format::name, #name},
    HALFTONE_FORMATS(HALFTONE_X)
#undef HALFTONE_X
};
constexpr bool in_order() {
  for (int i = 0; i < static_cast<int>(std::size(kRows)); ++i) {
    if (static_cast<int>(kRows[i].format) != i) return false;
  }
  return true;
}
static_assert(std::size(kRows) == kFormatCount && in_order(), "every format has a row, in order");

struct Alias {
  const char* alias;
  Format format;
};
constexpr Alias kAliases[] = {
    {"float32", Format::f32},
    {"float", Format::f32},
    {"float16", Format::f16},
    {"half", Format::f16},
    {"fp16", Format::f16},
    {"bfloat16", Format::bf16},
    {"fp8", Format::fp8_e4m3},
    {"e4m3", Format::fp8_e4m3},
    {"float8_e4m3fn", Format::fp8_e4m3},
    {"e5m2", Format::fp8_e5m2},
    {"float8_e5m2", Format::fp8_e5m2},
    {"fp32", Format::f32},
    {"fp4", Format::nvfp4},
};

}  // namespace

int bits(Format format) { return bits_of(format); }
const char* name(Format format) { return kRows[static_cast<int>(format)].name; }
bool is_block(Format format) { return has_group_scales(format); }

Format parse_format(std::string_view text) {
  std::vector<std::string> names;
  for (const FormatRow& row : kRows) {
    if (text == row.name) return row.format;
    names.emplace_back(row.name);
  }
  for (const Alias& alias : kAliases) {
    if (text == alias.alias) return alias.format;
    names.emplace_back(alias.alias);
  }
  fail(ErrorCode::invalid_argument, "format \"", text, "\" is not known; the nearest is \"",
       nearest(text, names), "\"");
}

const char* name(ScaleLayout layout) {
  switch (layout) {
    case ScaleLayout::linear:
      return "linear";
    case ScaleLayout::tiled_128x4:
      return "128x4";
    case ScaleLayout::tiled_8x4:
      return "8x4";
    case ScaleLayout::packed:
      return "packed";
  }
  return "?";
}

Scaling default_scaling(Format format) {
  if (has_group_scales(format)) return {scale_format_of(format), 1, scale_group_of(format)};
  switch (format) {
    case Format::fp8_e4m3:
    case Format::fp8_e5m2:
      return {Format::f32, 128, 128};
    case Format::int8:
      return {Format::f32, 1, 0};
    case Format::int4:
      return {Format::f16, 1, 32};
    default:
      fail(ErrorCode::invalid_argument, "format ", name(format),
           " is not quantised: it has no scales");
  }
}

// Without streams, as to_string of a tensor: checks build both for messages that are rarely used.
std::string to_string(const Scaling& scaling) {
  const auto extent = [](int64_t block) { return block == 0 ? "all" : std::to_string(block); };
  std::string text = extent(scaling.block_rows);
  text.append("x").append(extent(scaling.block_cols)).append(" ").append(name(scaling.format));
  if (scaling.layout != ScaleLayout::linear) text.append(" ").append(name(scaling.layout));
  if (scaling.asymmetric) text.append(" asymmetric");
  return text;
}

}  // namespace halftone

#include "halftone/dtype.h"

#include <vector>

#include "base/message.h"

namespace halftone {

namespace {

struct FormatRow {
  Format format;
  const char* name;
  int bits;
};
constexpr FormatRow kFormats[] = {
    {Format::f32, "f32", 32},
    {Format::f16, "f16", 16},
    {Format::bf16, "bf16", 16},
    {Format::fp8_e4m3, "fp8_e4m3", 8},
    {Format::fp8_e5m2, "fp8_e5m2", 8},
    {Format::mxfp8, "mxfp8", 8},
    {Format::mxfp4, "mxfp4", 4},
    {Format::nvfp4, "nvfp4", 4},
    {Format::int8, "int8", 8},
    {Format::int4, "int4", 4},
    {Format::i32, "i32", 32},
    {Format::i64, "i64", 64},
    {Format::u8, "u8", 8},
    {Format::ue8m0, "ue8m0", 8},
};
static_assert(std::size(kFormats) == kFormatCount, "every format has a row");

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

int bits(Format format) { return kFormats[static_cast<int>(format)].bits; }
const char* name(Format format) { return kFormats[static_cast<int>(format)].name; }

Format parse_format(std::string_view text) {
  std::vector<std::string> names;
  for (const FormatRow& row : kFormats) {
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
  switch (format) {
    case Format::fp8_e4m3:
    case Format::fp8_e5m2:
      return {Format::f32, 128, 128};
    case Format::mxfp8:
    case Format::mxfp4:
      return {Format::ue8m0, 1, 32};
    case Format::nvfp4:
      return {Format::fp8_e4m3, 1, 16};
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

// Attention modes (formats of Q K^T and P V) and their names.
#include <algorithm>

#include "base/message.h"
#include "ops/attention/kernels.h"

namespace halftone {

namespace {

constexpr AttentionMode kModes[] = {
    {Format::f32, Format::f32},           {Format::f16, Format::f16},
    {Format::bf16, Format::bf16},         {Format::fp8_e4m3, Format::bf16},
    {Format::fp8_e4m3, Format::fp8_e4m3}, {Format::mxfp8, Format::bf16},
    {Format::mxfp8, Format::fp8_e4m3},    {Format::nvfp4, Format::bf16},
    {Format::nvfp4, Format::fp8_e4m3},    {Format::nvfp4, Format::nvfp4},
    {Format::mxfp4, Format::bf16},        {Format::mxfp4, Format::fp8_e4m3},
    {Format::int8, Format::bf16},         {Format::mxfp6, Format::bf16},
    {Format::mxfp6_e3m2, Format::bf16},
};

// "fp8" within a mode: E4M3 is the only 8-bit float that attention takes.
std::string mode_name(Format f) { return f == Format::fp8_e4m3 ? "fp8" : name(f); }

}  // namespace

std::string to_string(const AttentionMode& mode) {
  return mode_name(mode.qk) + "+" + mode_name(mode.pv);
}

bool is_attention_mode(const AttentionMode& mode) {
  return std::find(std::begin(kModes), std::end(kModes), mode) != std::end(kModes);
}

std::vector<AttentionMode> attention_modes() { return {std::begin(kModes), std::end(kModes)}; }

AttentionMode parse_attention_mode(std::string_view text) {
  std::vector<std::string> names;
  for (const AttentionMode& mode : kModes) {
    names.push_back(to_string(mode));
    if (names.back() == text) return mode;
  }
  const size_t plus = text.find('+');
  if (plus != std::string_view::npos) {  // with the aliases of the formats
    try {
      const AttentionMode mode{parse_format(text.substr(0, plus)),
                               parse_format(text.substr(plus + 1))};
      if (is_attention_mode(mode)) return mode;
    } catch (const Error&) {
      // Named below.
    }
  }
  std::string all;
  for (const std::string& each : names) all += (all.empty() ? "" : ", ") + each;
  fail(ErrorCode::invalid_argument, "attention mode \"", text, "\" is not known; did you mean ",
       nearest(text, names), "? The modes are ", all);
}

}  // namespace halftone

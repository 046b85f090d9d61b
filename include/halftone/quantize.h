// Conversion between formats: quantise, dequantise, scale layouts.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// How a UE8M0 scale is rounded.
enum class Ue8m0Rounding : uint8_t {
  up,    // amax / max rounded up to a power of two: no element saturates (the vendor's recipe)
  down,  // floor(log2 amax) - emax: the OCP MX text; elements may saturate
};

struct QuantizeOptions {
  Format format = Format::fp8_e4m3;
  Scaling scaling = default_scaling(Format::fp8_e4m3);
  // Per block, try neighbouring scales too and keep the one with the least squared error: never
  // worse than without, slower to make.
  bool adaptive = false;
  Ue8m0Rounding ue8m0 = Ue8m0Rounding::up;
  // nvfp4: the FP32 tensor scale (amax / 2688); computed from the tensor when absent. Blocks above
  // 2688 times it saturate.
  std::optional<float> tensor_scale;

  QuantizeOptions() = default;
  explicit QuantizeOptions(Format f) : format(f), scaling(default_scaling(f)) {}
};

// "nvfp4", "mxfp8" ("mxfp8_down": OCP rounding), "fp8" (128x128), "fp8_tensor", "fp8_row",
// "fp8_1x128", "fp8_e5m2_row", "int8", "int8_g128", "int4" (groups of 32), "int4_g64",
// "int4_g128_asym", ... and "_adaptive" behind any. Error with the nearest valid name.
QuantizeOptions parse_quantization(std::string_view);
// The inverse, as short as possible; options without a name are described: "nvfp4 (1x16 fp8_e4m3
// 128x4)".
std::string to_string(const QuantizeOptions&);
// Every name that parse_quantization takes without "_adaptive".
std::vector<std::string> quantization_names();

// Whether a tensor of `shape` can be stored with these options. The last dimension must be a
// multiple of the block of mxfp8, mxfp4 and nvfp4, and even for int4; the last block of the others
// may be partial.
Support can_quantize(const Shape& shape, const QuantizeOptions&);

// x: f32, f16 or bf16, any rank >= 1, any strides. The result is row-major. Scales are those of
// each matrix of the last two dimensions, also "per tensor".
// A block with a NaN or an infinity gets the scale NaN and dequantises to NaN; nvfp4's tensor scale
// looks at finite elements only. Scales that would not fit f16 are an Error.
Tensor quantize(const Tensor& x, const QuantizeOptions&, Stream& = Stream::default_stream());
// Memory for the result, and quantize without allocating: `out` is from empty_quantized, or an
// earlier result, of the same shape and options. Results past the size of the caches are written
// around them.
Tensor empty_quantized(const Shape&, const QuantizeOptions&);
void quantize_into(const Tensor& x, const QuantizeOptions&, Tensor& out,
                   Stream& = Stream::default_stream());
// Exact value of every element, rounded once to `out` (f32, f16, bf16).
void dequantize_into(const Tensor& x, Tensor& out, Stream& = Stream::default_stream());
Tensor dequantize(const Tensor& x, Format out = Format::f32, Stream& = Stream::default_stream());
// Between f32, f16 and bf16, any strides; round to nearest even.
Tensor convert(const Tensor& x, Format out, Stream& = Stream::default_stream());

// Codes in a scale layout for `rows` x `groups` scales. Sizes in bytes include padding (filled with
// 0); `packed` needs one-byte scales as do the tiled layouts.
int64_t scale_layout_bytes(ScaleLayout, int64_t rows, int64_t groups);
// scales: one-byte codes, flat in `from` (or a [rows, groups] tensor when `from` is linear).
Tensor convert_scale_layout(const Tensor& scales, int64_t rows, int64_t groups, ScaleLayout from,
                            ScaleLayout to);

// x itself when its scales are linear already or it has none, else with a linear copy of them.
Tensor with_linear_scales(const Tensor& x);

}  // namespace halftone

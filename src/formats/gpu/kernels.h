// Quantisation and dequantisation on GPUs.
#pragma once
#include <cstdint>

#include "base/rows.h"
#include "formats/gpu/rows.h"
#include "formats/recipe.h"
#include "halftone/quantize.h"

namespace halftone {

// Matrices of rows x columns whose blocks of block_rows x recipe.group elements share a scale; 0 is
// all of the matrix's rows or columns. Codes are row-major, without gaps.
struct QuantizeArgs {
  Recipe recipe;
  Rows x;  // counted over the matrices
  Format source = Format::bf16;
  int64_t matrices = 1, rows = 0, columns = 0, block_rows = 1;
  uint8_t *codes = nullptr, *scales = nullptr, *zeros = nullptr;
  ScaleLayout layout = ScaleLayout::linear;
  int64_t scale_bytes = 0;  // of a matrix's scales
  float given = 0;          // above 0: the one scale of all codes, which is stored as it is
  // Of nvfp4: where the tensor scale goes, or null; and whether it is found from x, else it is in
  // the recipe. While it is being found, its place holds the bits of the largest |x|, `amax`.
  float* tensor_scale = nullptr;
  bool find_tensor_scale = false;
  const uint32_t* amax = nullptr;  // set by quantize_gpu
};
// As the public one, on a device.
Tensor empty_quantized(const Shape&, const QuantizeOptions&, const Device&);
// What a kernel that quantises rows itself writes to: `out` from empty_quantized, checked, its
// padding cleared. nvfp4 has a given tensor scale.
QuantizeArgs quantize_target(const QuantizeOptions&, Tensor& out, Stream&);
// A scale that overflows f16 is reported as a fault of the stream.
void quantize_gpu(const QuantizeArgs&, Stream&);

struct DequantizeArgs : ScaledCodes {  // of any format that quantize makes, or a plain one
  Format out_format = Format::f32;
  Rows codes;
  char* out = nullptr;  // row-major
};
void dequantize_gpu(const DequantizeArgs&, Stream&);
// x of any format to a plain one, row-major, both on the stream's device.
void expand_gpu(const Tensor& x, const Tensor& out, Stream&);

}  // namespace halftone

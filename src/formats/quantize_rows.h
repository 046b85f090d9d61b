// Quantisation into memory of the caller, for operations that write quantised rows themselves
// (caches, activations): no allocation, any thread.
#pragma once
#include <cstdint>

#include "base/function_ref.h"
#include "formats/kernels.h"
#include "halftone/quantize.h"

namespace halftone {

// The recipe of options with scales within rows; nvfp4 with options.tensor_scale, else with tensor
// scale 1.
Recipe make_recipe(const QuantizeOptions&);
// Encodes for a stored tensor scale: finite and above 0.
void set_tensor_scale(float tensor_scale, Recipe*);

// The tensor scale that quantize() gives a tensor whose largest |x| is `amax`, finite.
constexpr void set_tensor_amax(float amax, Recipe* recipe) {
  if (amax == 0) return;  // all scales 1
  recipe->encode_scale = 2688.0f / amax;
  recipe->tensor_scale = amax / 2688.0f;
  if (!(recipe->encode_scale < kFloatMax)) {
    recipe->encode_scale = kFloatMax;
    recipe->tensor_scale = 1.0f / kFloatMax;
  }
  recipe->decode_scale = 1.0f / recipe->encode_scale;
}

// Rows to quantise and where the results go; strides in bytes.
struct RowsIn {
  Format format;  // f32, f16, bf16
  const void* data;
  int64_t rows, columns, stride;
};
struct RowsOut {
  uint8_t* codes;
  int64_t codes_stride;
  uint8_t* scales;  // in the format of the scaling, consecutive in a row
  int64_t scales_stride;
  uint8_t* zeros = nullptr;  // asymmetric int4
  int64_t zeros_stride = 0;
};

// Quantises on the calling thread: the bits are those of quantize() with the same options and, for
// nvfp4, the same given tensor scale. Blocks with a NaN or an infinity become NaN. False when a
// scale overflows f16.
bool quantize_rows(const Recipe&, const RowsIn&, const RowsOut&);

// Error where the options cannot be had in one pass: scales within rows, nvfp4 with a tensor scale.
void check_one_pass(const QuantizeOptions&);
// Quantises rows that `produce` makes, tile by tile, without their ever reaching memory: rows
// begin .. end of all of out's, in `format`, into `tile` [end - begin, columns]. The bits are those
// of quantize() of the whole. Scales within rows only, and nvfp4 with a given tensor scale.
// `produce` is called on several threads; on a GPU, for what no kernel makes and quantises at once,
// it is called once, for all rows, whose memory is allocated.
// `source`: what they are made from, in `format` and row by row as long, so that the memory is
// asked for the next tile's while one is quantised; or undefined.
void quantize_produced(Format format, const QuantizeOptions&, const Tensor& source, Tensor& out,
                       Stream&,
                       FunctionRef<void(int64_t begin, int64_t end, const Tensor& tile)> produce);

// fp8 with one given scale: codes of x / scale, computed as x * (1 / scale); saturates, NaN stays.
void quantize_rows_with_scale(Format fp8, float scale, const RowsIn&, uint8_t* codes,
                              int64_t codes_stride);

}  // namespace halftone

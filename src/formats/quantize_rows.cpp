#include "formats/quantize_rows.h"

namespace halftone {

Recipe make_recipe(const QuantizeOptions& options) {
  Recipe recipe;
  recipe.format = options.format;
  recipe.scale_format = options.scaling.format;
  recipe.group = options.scaling.block_cols;
  recipe.ue8m0_down = options.ue8m0 == Ue8m0Rounding::down;
  recipe.asymmetric = options.scaling.asymmetric;
  recipe.adaptive = options.adaptive;
  if (options.tensor_scale) set_tensor_scale(*options.tensor_scale, &recipe);
  return recipe;
}

void set_tensor_scale(float tensor_scale, Recipe* recipe) {
  const float inverse = 1.0f / tensor_scale;
  recipe->encode_scale = inverse < kFloatMax ? inverse : kFloatMax;
  recipe->decode_scale = 1.0f / recipe->encode_scale;
  recipe->tensor_scale = tensor_scale;
}

bool quantize_rows(const Recipe& recipe, const RowsIn& in, const RowsOut& out) {
  const FormatKernels& kernels = format_kernels();
  bool fits = true;
  for (int64_t i = 0; i < in.rows; ++i) {
    uint8_t* zeros = out.zeros != nullptr ? out.zeros + i * out.zeros_stride : nullptr;
    fits &= kernels.quantize_row(
        recipe, in.format, static_cast<const char*>(in.data) + i * in.stride, in.columns,
        out.codes + i * out.codes_stride, out.scales + i * out.scales_stride, zeros);
  }
  return fits;
}

void quantize_rows_with_scale(Format fp8, float scale, const RowsIn& in, uint8_t* codes,
                              int64_t codes_stride) {
  const FormatKernels& kernels = format_kernels();
  for (int64_t i = 0; i < in.rows; ++i) {
    kernels.encode(in.format, fp8, static_cast<const char*>(in.data) + i * in.stride, in.columns,
                   1.0f / scale, kInt4Zero, codes + i * codes_stride);
  }
}

}  // namespace halftone

// The end of a product on a GPU: scales of the rows, bias, activation or gate, residual, rounding.
#pragma once
#include "halftone/activation_function.h"
#include "ops/product/gpu_operand.h"
#include "pipe/activate.h"
#include "pipe/elements.h"

namespace halftone::product {

// Strides in bytes; those of vectors are from one output to the next.
struct GpuFinish {
  char* out = nullptr;  // [m, n]
  int64_t out_row = 0;
  const char* residual = nullptr;  // [m, n]
  int64_t residual_row = 0;
  const char* bias[2] = {};  // of the outputs, and of the gate's other half
  int64_t bias_step = 0, bias_expert = 0;
  const float* row_scales = nullptr;   // [m]: of x; null: 1
  uint32_t row_scale_step = 1;         // 0: one for all
  const float* row_weights = nullptr;  // [m]: of the token at its expert; null: 1
  ActivationFunction activation{Activation::identity};
  GatedActivation gated;
  bool gate = false;
  Format out_format = Format::f32, bias_format = Format::f32, residual_format = Format::f32;
};

// Output (row, n) from the sums of its row of W and, of a gate, of the other half's.
HT_DEVICE void finish_output(const GpuFinish& f, const GpuLayout& weight, const GpuSource& source,
                             const GpuSource& up, uint32_t expert, uint32_t row, uint32_t x_row,
                             uint32_t n, float sum, float up_sum,
                             hw::Site site = hw::Site::current()) {
  float x_scale = f.row_scales != nullptr
                      ? hw::load_global(f.row_scales + x_row * f.row_scale_step, site)
                      : 1.0f;
  if (f.row_weights != nullptr) x_scale *= hw::load_global(f.row_weights + row, site);
  const auto affine = [&](const GpuSource& s, float y, const char* bias) {
    y = y * row_scale(weight, s, n, site) * x_scale;
    if (bias == nullptr) return y;
    return y +
           pipe::load_element(f.bias_format, bias + expert * f.bias_expert + n * f.bias_step, site);
  };
  float value[1] = {affine(source, sum, f.bias[0])};
  if (f.gate) {
    const float other[1] = {affine(up, up_sum, f.bias[1])};
    pipe::activate_gate<false>(f.gated, value, other);
  } else {
    pipe::activate<false>(f.activation, value);
  }
  float y = value[0];
  if (f.residual != nullptr) {
    const uint32_t size = pipe::bytes_of(f.residual_format);
    y += pipe::load_element(f.residual_format, f.residual + row * f.residual_row + n * size, site);
  }
  pipe::store_element(f.out_format, f.out + row * f.out_row + n * pipe::bytes_of(f.out_format), y,
                      site);
}

}  // namespace halftone::product

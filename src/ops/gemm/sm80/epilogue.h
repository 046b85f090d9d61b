// The epilogue of the GEMMs on GPUs: row scales, bias, activation or gate, residual, conversion.
#pragma once
#include "halftone/activation_function.h"
#include "ops/gemm/sm80/operand.h"
#include "pipe/activate.h"
#include "pipe/elements.h"

namespace halftone::gemm {

// Common epilogues that kernels have a short path for: scales and a bias (affine), or SwiGLU of
// both halves; then an optional 16-bit residual, and 16-bit outputs, both in groups of four aligned
// to 8 bytes. Code that a CTA runs once costs as much as its instruction fetch.
enum class SpecialisedEpilogue : uint8_t { none, affine, swiglu };

// Strides in bytes; those of vectors are from one output to the next.
struct GpuEpilogue {
  char* out = nullptr;  // [m, n]
  int64_t out_row = 0;
  const char* residual = nullptr;  // [m, n]
  int64_t residual_row = 0;
  const char* bias[2] = {};  // of the outputs, and of the up half of a gate
  int64_t bias_step = 0, bias_expert = 0;
  const float* row_scales = nullptr;   // [m]: of x; null: 1
  uint32_t row_scale_step = 1;         // 0: one for all rows
  const float* row_weights = nullptr;  // [m]: routing weight of the token; null: 1
  ActivationFunction activation{Activation::identity};
  GatedActivation gated;
  bool gate = false;
  SpecialisedEpilogue specialised =
      SpecialisedEpilogue::none;  // common to all fused GEMMs of a launch: specialised_epilogue
  Format out_format = Format::f32, bias_format = Format::f32, residual_format = Format::f32;
};

// What output (row, n) needs beside its sum. Loaded early, it stalls nobody.
struct EpilogueInputs {
  float x_scale = 1, scale[2] = {1, 1}, bias[2] = {}, residual = 0;
};
HT_DEVICE EpilogueInputs epilogue_inputs(const GpuEpilogue& f, const GpuLayout& weight,
                                         const GpuSource& source, const GpuSource& up,
                                         uint32_t expert, uint32_t row, uint32_t x_row, uint32_t n,
                                         hw::Site site = hw::Site::current()) {
  EpilogueInputs in;
  if (f.row_scales != nullptr) {
    in.x_scale = hw::load_global(f.row_scales + x_row * f.row_scale_step, site);
  }
  if (f.row_weights != nullptr) in.x_scale *= hw::load_global(f.row_weights + row, site);
  in.scale[0] = row_scale(weight, source, n, site);
  if (f.gate) in.scale[1] = row_scale(weight, up, n, site);
  HT_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {
    if (f.bias[i] == nullptr || (i == 1 && !f.gate)) continue;
    const char* at = f.bias[i] + expert * f.bias_expert + n * f.bias_step;
    in.bias[i] = pipe::load_element(f.bias_format, at, site);
  }
  if (f.residual != nullptr) {
    const uint32_t size = pipe::bytes_of(f.residual_format);
    in.residual =
        pipe::load_element(f.residual_format, f.residual + row * f.residual_row + n * size, site);
  }
  return in;
}

// Output (row, n) from the sum of its row of W and, with a gate, the up half's.
HT_DEVICE void epilogue_output(const GpuEpilogue& f, const EpilogueInputs& in, uint32_t row,
                               uint32_t n, float sum, float up_sum,
                               hw::Site site = hw::Site::current()) {
  const auto affine = [&](uint32_t i, float y) {
    y = y * in.scale[i] * in.x_scale;
    return f.bias[i] == nullptr ? y : y + in.bias[i];
  };
  float value[1] = {affine(0, sum)};
  if (f.gate) {
    const float other[1] = {affine(1, up_sum)};
    pipe::activate_gate<false>(f.gated, value, other);
  } else {
    pipe::activate<false>(f.activation, value);
  }
  float y = value[0];
  if (f.residual != nullptr) y += in.residual;
  pipe::store_element(f.out_format, f.out + row * f.out_row + n * pipe::bytes_of(f.out_format), y,
                      site);
}
HT_DEVICE void epilogue_output(const GpuEpilogue& f, const GpuLayout& weight,
                               const GpuSource& source, const GpuSource& up, uint32_t expert,
                               uint32_t row, uint32_t x_row, uint32_t n, float sum, float up_sum,
                               hw::Site site = hw::Site::current()) {
  const EpilogueInputs in = epilogue_inputs(f, weight, source, up, expert, row, x_row, n, site);
  epilogue_output(f, in, row, n, sum, up_sum, site);
}

}  // namespace halftone::gemm

// The approximations of the special-function unit: ex2, lg2, rcp, rsqrt, sqrt, tanh, sin, cos.
//
// No public model gives their bits, so the simulator answers with the correctly rounded value,
// which the chip comes near; docs/findings/tensor-core-arithmetic.md has what was measured. `ftz`:
// subnormal operands and results become zeros of their sign. NaN results are 0x7fffffff.
#pragma once
#include <cstdint>

namespace halftone::sim {

float ex2_approx(float x, bool ftz);
float lg2_approx(float x, bool ftz);
float rcp_approx(float x, bool ftz);
float rsqrt_approx(float x, bool ftz);
float sqrt_approx(float x, bool ftz);
float sin_approx(float x, bool ftz);
float cos_approx(float x, bool ftz);
float tanh_approx(float x);  // has no .ftz: subnormals stay

// Codes of f16 and bf16; each half of the packed forms is one of these.
uint16_t ex2_approx_f16(uint16_t x);
uint16_t ex2_approx_ftz_bf16(uint16_t x);
uint16_t tanh_approx_f16(uint16_t x);
uint16_t tanh_approx_bf16(uint16_t x);

}  // namespace halftone::sim

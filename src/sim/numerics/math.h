// The approximations of the special-function unit: ex2, lg2, rcp, rsqrt, sqrt, tanh, sin, cos.
//
// No public model gives their bits, so the simulator answers with the correctly rounded value,
// which the chip comes near; docs/findings/tensor-core-arithmetic.md has what was measured. `ftz`:
// subnormal operands and results become zeros of their sign. NaN results are 0x7fffffff.
#pragma once
#include <cstdint>
#include <vector>

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

// While one lives, ex2 and rcp give the bits of a chip that was asked, in all threads, where
// argument and result are normal: a kernel that runs on both can then be compared to the bit.
class MeasuredFunctions {
 public:
  static constexpr uint32_t kCount = 1u << 23;
  // ex2[i]: of -i 2^-23. rcp[i]: of 1 + i 2^-23. kCount each.
  MeasuredFunctions(std::vector<float> ex2, std::vector<float> rcp);
  ~MeasuredFunctions();
  MeasuredFunctions(const MeasuredFunctions&) = delete;
  MeasuredFunctions& operator=(const MeasuredFunctions&) = delete;

  // Arguments count in steps of 2^-23, and the exponent of the result is all else: of -x the chip
  // takes the step at or above, of x always the one above, as negative numbers are complements.
  float ex2(float x) const;
  float rcp(float x) const;

 private:
  std::vector<float> ex2_, rcp_;
};

}  // namespace halftone::sim

// Small-M GEMM on sm_90a, host side (small_m/w8.cuh, small_m/w4.cuh).
#pragma once
#include <span>

#include "ops/gemm/sm80/launch.h"
#include "ops/gemm/sm90/mixed/launch.h"
#include "ops/gemm/sm90/small_m/params.h"

namespace halftone::gemm {

// Empty, or the rule that a dense problem breaks.
std::string refuse_sm90_small_m(const GemmProblem&, const GpuWeight&, const GpuX&);
// The alignment of TMA.
OperandNeeds needs_sm90_small_m(const GemmProblem&, const GpuWeight&);
// Tile and split-K on `multiprocessors` SMs, for describe().
std::string describe_sm90_small_m(int64_t m, int64_t n, int64_t k, bool gate, int multiprocessors);
// One GEMM, or up to kSm90MaxFused more that are horizontally fused (sm90/fused_gemms.h).
void launch_sm90_small_m(const GpuWeight&, std::span<const GpuGemm>, Stream&);

}  // namespace halftone::gemm

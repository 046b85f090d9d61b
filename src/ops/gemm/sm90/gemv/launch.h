// GEMV on sm_90a, host side (gemv/gemv.cuh).
#pragma once
#include <span>

#include "ops/gemm/problem.h"
#include "ops/gemm/sm80/launch.h"
#include "ops/gemm/sm90/gemv/params.h"

namespace halftone::gemm {

// Empty, or the rule that a problem breaks: x has one row of BF16, or of FP16 beside FP16 weights.
std::string refuse_sm90_gemv(const GemmProblem&, const GpuWeight&, const GpuX&);
// The alignment of TMA.
OperandNeeds needs_sm90_gemv(const GemmProblem&, const GpuWeight&);
// One GEMV, or up to kSm90MaxFused more that are horizontally fused (sm90/fused_gemms.h). The grid
// has as many CTAs as `multiprocessors` SMs hold; 0: those of the device.
void launch_sm90_gemv(const GpuWeight&, std::span<const GpuGemm>, Stream&,
                      uint32_t multiprocessors = 0, const Sm90GemvNorm& = {});
// log2 of the rows of a tensor that share a scale; 31: all do.
uint32_t log2_scale_rows(const GpuLayout&);
// Whether the kernel can fuse the RMS norm of the problem.
bool norms_sm90_gemv(const GemmProblem&);

}  // namespace halftone::gemm

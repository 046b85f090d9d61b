// Some dozens of rows of x times W on Hopper, host side (sm90_small_m.cuh).
#pragma once
#include <span>

#include "ops/gemm/sm80/launch.h"
#include "ops/gemm/sm90/mixed/launch.h"
#include "ops/gemm/sm90/small_m/params.h"

namespace halftone::gemm {

// Empty, or the rule that a problem without experts breaks.
std::string refuse_sm90_small_m(const Sm90Problem&, const GpuWeight&, const GpuX&);
// Whether the operands lie where tensor copies can take them.
bool fits_sm90_small_m(const GpuWeight&, const GpuGemm&);
// What a block works on, of `multiprocessors`.
std::string describe_sm90_small_m(int64_t m, int64_t n, int64_t k, bool gate, int multiprocessors);
// One product, or up to kSm90MaxFused others that join it (sm90_more.h).
void launch_sm90_small_m(const GpuWeight&, std::span<const GpuGemm>, Stream&);

}  // namespace halftone::gemm

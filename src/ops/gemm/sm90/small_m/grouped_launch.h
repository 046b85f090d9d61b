// Grouped small-M GEMM on sm_90a, host side (small_m/grouped_w8.cuh, small_m/grouped_w4.cuh).
#pragma once
#include "ops/gemm/sm90/mixed/launch.h"

namespace halftone::gemm {

// Empty, or the rule that a grouped problem breaks: up to some dozens of rows per expert, x in
// BF16, weights of 4 or 8 bits.
std::string refuse_sm90_grouped_small_m(const GemmProblem&, const GpuWeight&, const GpuX&);
// The alignment of the copies; of x as given, if it is not gathered.
OperandNeeds needs_sm90_grouped_small_m(const GemmProblem&, const GpuWeight&);
// Rows of all experts from which it is faster than the grouped GEMV.
int64_t fewest_rows_sm90_grouped_small_m(const GemmProblem&, const GpuWeight&);
// Rows of x of an M-chunk.
uint32_t chunk_rows_sm90_grouped_small_m(const GemmProblem&);
// `max_chunks`: an upper bound; the list is in the GEMM's params. Its static_weights says that the
// list and the weights were written before the previous kernel started (PDL).
void launch_sm90_grouped_small_m(const GemmProblem&, const GpuWeight&, const GpuGemm&,
                                 const Sm90Matrices&, uint32_t max_chunks, Stream&);

}  // namespace halftone::gemm

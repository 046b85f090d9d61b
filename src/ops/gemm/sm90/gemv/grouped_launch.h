// Grouped GEMV on sm_90a, host side (gemv/grouped.cuh).
#pragma once
#include "ops/gemm/sm90/mixed/launch.h"

namespace halftone::gemm {

// Empty, or the rule that a grouped problem breaks: few rows per expert, x in BF16, weights of 4 or
// 8 bits.
std::string refuse_sm90_grouped_gemv(const GemmProblem&, const GpuWeight&, const GpuX&);
// The alignment of TMA and 16-byte loads; of x as given.
OperandNeeds needs_sm90_grouped_gemv(const GpuWeight&);
// Rows of x of an M-chunk.
uint32_t chunk_rows_sm90_grouped_gemv(const GemmProblem&, const GpuWeight&);
// `max_chunks`: an upper bound; the list is in the GEMM's params. Its static_weights says that the
// list and the weights were written before the previous kernel started (PDL).
void launch_sm90_grouped_gemv(const GemmProblem&, const GpuWeight&, const GpuGemm&,
                              const Sm90Matrices&, uint32_t max_chunks, Stream&);

}  // namespace halftone::gemm

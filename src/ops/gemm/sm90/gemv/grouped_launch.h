// Grouped GEMV on sm_90a, host side (gemv/grouped.cuh).
#pragma once
#include "ops/gemm/sm90/mixed/launch.h"

namespace halftone::gemm {

// Whether the kernel takes a grouped problem: few rows per expert, x in BF16, weights of 4 or 8
// bits.
bool takes_sm90_grouped_gemv(const Sm90Problem&, const GpuWeight&, const GpuX&);
// Whether the operands meet the alignment of TMA and 16-byte loads. `x` as given.
bool fits_sm90_grouped_gemv(const GpuWeight&, const GpuLayout&, const Sm90Matrices&,
                            const Tensor& x);
// Rows of x of an M-chunk.
uint32_t chunk_rows_sm90_grouped_gemv(const Sm90Problem&, const GpuWeight&);
// `max_chunks`: an upper bound; the list is in the GEMM's params. Its static_weights says that the
// list and the weights were written before the previous kernel started (PDL).
void launch_sm90_grouped_gemv(const Sm90Problem&, const GpuWeight&, const GpuGemm&,
                              const Sm90Matrices&, uint32_t max_chunks, Stream&);

}  // namespace halftone::gemm

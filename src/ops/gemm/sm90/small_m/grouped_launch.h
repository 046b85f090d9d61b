// Grouped small-M GEMM on sm_90a, host side (small_m/grouped_w8.cuh, small_m/grouped_w4.cuh).
#pragma once
#include "ops/gemm/sm90/mixed/launch.h"

namespace halftone::gemm {

// Whether the kernel takes a grouped problem: up to some dozens of rows per expert, x in BF16,
// weights of 4 or 8 bits.
bool takes_sm90_grouped_small_m(const Sm90Problem&, const GpuWeight&, const GpuX&);
// Whether the operands meet the alignment of the copies. `x` is undefined where it is not passed as
// given.
bool fits_sm90_grouped_small_m(const GpuWeight&, const GpuLayout&, const Sm90Matrices&,
                               const Tensor& x);
// Rows of all experts from which it is faster than the grouped GEMV.
int64_t fewest_rows_sm90_grouped_small_m(const Sm90Problem&, const GpuWeight&);
// Rows of x of an M-chunk.
uint32_t chunk_rows_sm90_grouped_small_m(const Sm90Problem&);
// `max_chunks`: an upper bound; the list is in the GEMM's params. Its static_weights says that the
// list and the weights were written before the previous kernel started (PDL).
void launch_sm90_grouped_small_m(const Sm90Problem&, const GpuWeight&, const GpuGemm&,
                                 const Sm90Matrices&, uint32_t max_chunks, Stream&);

}  // namespace halftone::gemm

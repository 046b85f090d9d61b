// Up to some dozens of rows of x for each expert times its W on Hopper, host side
// (sm90_grouped_small_m.cuh).
#pragma once
#include "ops/gemm/sm90/mixed/launch.h"

namespace halftone::gemm {

// Whether the kernel takes a problem with experts: some dozens of rows for each, x in bf16, codes
// of 4 or 8 bits.
bool takes_sm90_grouped_small_m(const Sm90Problem&, const GpuWeight&, const GpuX&);
// Whether the operands lie where copies can take them. `x` is undefined where it does not enter as
// it is given.
bool fits_sm90_grouped_small_m(const GpuWeight&, const GpuLayout&, const Sm90Matrices&,
                               const Tensor& x);
// Rows of all experts from which it is faster than the kernel of few rows.
int64_t fewest_rows_sm90_grouped_small_m(const Sm90Problem&, const GpuWeight&);
// Rows of x of a part.
uint32_t chunk_rows_sm90_grouped_small_m(const Sm90Problem&);
// `parts`: how many there are at most; the product has their list. Its static_weights says that
// the list and the weights had been written before the kernel ahead began.
void launch_sm90_grouped_small_m(const Sm90Problem&, const GpuWeight&, const GpuGemm&,
                                 const Sm90Matrices&, uint32_t max_chunks, Stream&);

}  // namespace halftone::gemm

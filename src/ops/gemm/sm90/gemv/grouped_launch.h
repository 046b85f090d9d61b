// A few rows of x for each expert times its W on Hopper, host side (sm90_grouped_gemv.cuh).
#pragma once
#include "ops/gemm/sm90/mixed/launch.h"

namespace halftone::gemm {

// Whether the kernel takes a problem with experts: few rows for each, x in bf16, codes of 4 or 8
// bits.
bool takes_sm90_grouped_gemv(const Sm90Problem&, const GpuWeight&, const GpuX&);
// Whether the operands lie where copies and loads of 16 bytes can take them. `x` as it is given.
bool fits_sm90_grouped_gemv(const GpuWeight&, const GpuLayout&, const Sm90Matrices&,
                            const Tensor& x);
// Rows of x of a part.
uint32_t chunk_rows_sm90_grouped_gemv(const Sm90Problem&, const GpuWeight&);
// `parts`: how many there are at most; the product has their list. Its static_weights says that
// the list and the weights had been written before the kernel ahead began.
void launch_sm90_grouped_gemv(const Sm90Problem&, const GpuWeight&, const GpuGemm&,
                              const Sm90Matrices&, uint32_t max_chunks, Stream&);

}  // namespace halftone::gemm

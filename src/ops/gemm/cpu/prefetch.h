// Software prefetch of packed weights. Included by ISA-level sources.
#pragma once
#include "ops/gemm/cpu/kernels.h"
#include "simd/lanes.h"

namespace halftone::HALFTONE_LEVEL {

// The next lines of `a`.
HALFTONE_INLINE void prefetch_lines(gemm::Prefetch& a) {
  for (int64_t i = a.lines_per_tile; i > 0 && a.rows > 0; --i) {
    __builtin_prefetch(a.row + a.at, 0, 2);
    a.at += 64;
    if (a.at >= a.bytes) a.at = 0, a.row += a.row_bytes, --a.rows;
  }
}

}  // namespace halftone::HALFTONE_LEVEL

// Kernels of the norm family, one per CPU instruction level.
#pragma once
#include <cstdint>

#include "base/rows.h"
#include "halftone/dtype.h"

namespace halftone {

struct NormArgs {
  Rows x, out, residual;  // residual.base null: none
  const void* weight;     // [columns]
  int64_t columns;
  Format format, weight_format;
  float eps;
};
using NormFunction = void (*)(const NormArgs&, int64_t begin, int64_t end);

namespace cpu_baseline {
void norm_rows(const NormArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx2 {
void norm_rows(const NormArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx512 {
void norm_rows(const NormArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx512_bf16 {
void norm_rows(const NormArgs&, int64_t begin, int64_t end);
}

}  // namespace halftone

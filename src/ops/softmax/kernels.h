// Kernels of softmax, one per CPU instruction level.
#pragma once
#include <cstdint>

#include "base/rows.h"
#include "halftone/dtype.h"

namespace halftone {

struct SoftmaxArgs {
  Rows x, out;
  int64_t columns;
  Format format, out_format;
};
using SoftmaxFunction = void (*)(const SoftmaxArgs&, int64_t begin, int64_t end);

namespace cpu_baseline {
void softmax_rows(const SoftmaxArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx2 {
void softmax_rows(const SoftmaxArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx512 {
void softmax_rows(const SoftmaxArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx512_bf16 {
void softmax_rows(const SoftmaxArgs&, int64_t begin, int64_t end);
}

}  // namespace halftone

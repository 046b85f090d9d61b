// Rows of a strided tensor as plain data for kernels; also included by files compiled per
// ISA level, so nothing here may be merged by the linker, and by GPU kernels (constexpr).
#pragma once
#include <cstdint>

namespace halftone {

// Row r = (r / inner, r % inner) of a tensor [outer, inner, columns]; strides in bytes.
struct Rows {
  char* base = nullptr;
  int64_t inner = 1;
  int64_t outer_stride = 0, inner_stride = 0;

  __attribute__((always_inline)) constexpr char* operator[](int64_t r) const {
    if (inner == 1) return base + r * outer_stride;
    return base + (r / inner) * outer_stride + (r % inner) * inner_stride;
  }
};

}  // namespace halftone

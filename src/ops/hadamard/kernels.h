// Walsh-Hadamard kernels: one per CPU ISA level. On GPUs the transform is a step of the fused heads
// kernel (ops/heads).
#pragma once
#include <cstdint>

#include "base/levels.h"
#include "base/rows.h"
#include "halftone/dtype.h"

namespace halftone {

struct HadamardArgs {
  Rows x = {}, out = {};  // of elements of `format`; the same rows, or no memory shared
  int64_t head_dim = 0, block = 0;
  Format format = Format::bf16;
  const uint32_t* signs = nullptr;  // [1024]: the sign bit, or 0
  float scale = 0;                  // 1 / sqrt(block)
};
// Transforms rows [begin, end).
using HadamardFunction = void (*)(const HadamardArgs&, int64_t begin, int64_t end);

HALFTONE_DECLARE_LEVELS(void hadamard_rows(const HadamardArgs&, int64_t begin, int64_t end))

}  // namespace halftone

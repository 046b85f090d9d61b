// RoPE kernels: one per CPU ISA level, and those of GPUs.
#pragma once
#include <cstdint>

#include "base/levels.h"
#include "halftone/dtype.h"

namespace halftone {

class Stream;

struct RopeArgs {
  char* x;
  int64_t token_stride, head_stride;  // bytes
  int64_t heads;
  const double* frequencies;  // [pairs]
  int64_t pairs;
  const void* positions;  // [tokens]; on the CPU checked by the caller
  int64_t position_stride;
  bool wide_positions;  // i64, else i32
  bool interleaved;
  Format format;
  float magnitude;  // multiplies cosine and sine
};
// Rotates tokens [begin, end).
using RopeFunction = void (*)(const RopeArgs&, int64_t begin, int64_t end);

HALFTONE_DECLARE_LEVELS(void rope_tokens(const RopeArgs&, int64_t begin, int64_t end))

using RopeGpuFunction = void (*)(const RopeArgs&, int64_t tokens, Stream&);
void rope_gpu(const RopeArgs&, int64_t tokens, Stream&);

}  // namespace halftone

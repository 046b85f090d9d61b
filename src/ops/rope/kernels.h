// Kernels of rotary embedding, one per CPU instruction level.
#pragma once
#include <cstdint>

#include "halftone/dtype.h"

namespace halftone {

struct RopeArgs {
  char* x;
  int64_t token_stride, head_stride;  // bytes
  int64_t heads;
  const double* frequencies;  // [pairs]
  int64_t pairs;
  const void* positions;  // [tokens], checked by the caller
  int64_t position_stride;
  bool wide_positions;  // i64, else i32
  bool interleaved;
  Format format;
  float magnitude;  // multiplies cosine and sine
};
// Rotates tokens [begin, end).
using RopeFunction = void (*)(const RopeArgs&, int64_t begin, int64_t end);

namespace cpu_baseline {
void rope_tokens(const RopeArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx2 {
void rope_tokens(const RopeArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx512 {
void rope_tokens(const RopeArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx512_bf16 {
void rope_tokens(const RopeArgs&, int64_t begin, int64_t end);
}

}  // namespace halftone

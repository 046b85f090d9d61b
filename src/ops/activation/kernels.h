// Kernels of the gated activations, one per CPU instruction level.
#pragma once
#include <cstdint>

#include "base/rows.h"
#include "halftone/dtype.h"

namespace halftone {

struct SwigluArgs {
  Rows gate, up, out;
  int64_t columns;
  int64_t column_blocks;  // a unit of work is one of these pieces of a row
  Format format;
};
// Columns of a piece: long rows are shared between threads. A multiple of every vector length.
inline constexpr int64_t kSwigluBlock = 16 * 1024;
using SwigluFunction = void (*)(const SwigluArgs&, int64_t begin, int64_t end);

namespace cpu_baseline {
void swiglu_pieces(const SwigluArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx2 {
void swiglu_pieces(const SwigluArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx512 {
void swiglu_pieces(const SwigluArgs&, int64_t begin, int64_t end);
}
namespace cpu_avx512_bf16 {
void swiglu_pieces(const SwigluArgs&, int64_t begin, int64_t end);
}

}  // namespace halftone

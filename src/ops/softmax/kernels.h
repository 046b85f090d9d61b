// Softmax kernels: one per CPU ISA level, and those of GPUs.
#pragma once
#include <cstdint>

#include "base/levels.h"
#include "base/rows.h"
#include "halftone/dtype.h"

namespace halftone {

class Stream;

struct SoftmaxArgs {
  Rows x, out;
  int64_t columns;
  Format format, out_format;
  float scale;
  bool online;    // two passes over the row, else three, the exponentials kept between the last two
  bool streamed;  // larger than the caches: results by streaming stores
};
// Longest row of which three passes keep the exponentials: 16 KiB leave room for the row itself in
// an L1 of 32 KiB.
inline constexpr int64_t kSoftmaxKept = 4096;
using SoftmaxFunction = void (*)(const SoftmaxArgs&, int64_t begin, int64_t end);
HALFTONE_DECLARE_LEVELS(void softmax_rows(const SoftmaxArgs&, int64_t begin, int64_t end))

using SoftmaxGpuFunction = void (*)(const SoftmaxArgs&, int64_t rows, Stream&);
void softmax_gpu(const SoftmaxArgs&, int64_t rows, Stream&);

}  // namespace halftone

// One step of non-maximum suppression, per CPU ISA level.
#pragma once
#include <cstdint>

#include "base/levels.h"

namespace halftone {

// Boxes in the order of their scores, coordinate by coordinate; `classes` are ranks in i32.
struct NmsArgs {
  const float *x1, *y1, *x2, *y2, *area;
  const int32_t* classes;  // null: one class
  int32_t* suppressed;     // 0 or not
  float threshold;
};
// Suppresses what overlaps box `kept` among boxes [kept + 1, end).
using NmsFunction = void (*)(const NmsArgs&, int64_t kept, int64_t end);
HALFTONE_DECLARE_LEVELS(void nms_suppress(const NmsArgs&, int64_t kept, int64_t end))

}  // namespace halftone

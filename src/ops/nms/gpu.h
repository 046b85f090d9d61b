// Non-maximum suppression on GPUs.
#pragma once
#include <cstdint>

#include "halftone/dtype.h"

namespace halftone {

class Stream;

// Strides in bytes. The arrays that follow `keep` are workspace of n elements each, in the order of
// the scores.
struct NmsGpuArgs {
  const char *boxes = nullptr, *scores = nullptr;
  Format format = Format::f32;
  int64_t box_stride = 0, coordinate_stride = 0, score_stride = 0;
  const void* classes = nullptr;  // null: one class
  int64_t class_stride = 0;       // elements
  bool wide_classes = false;      // i64, else i32
  int64_t n = 0;
  float iou_threshold = 0, score_threshold = 0;
  int64_t *keep = nullptr, *count = nullptr;
  int64_t* labels = nullptr;
  float *x1 = nullptr, *y1 = nullptr, *x2 = nullptr, *y2 = nullptr, *area = nullptr;
  uint32_t *order = nullptr, *suppressed = nullptr;
  uint32_t* candidates = nullptr;  // one
};
inline constexpr int64_t kNmsWorkspaceBytes = 8 + 7 * 4;  // of a box, beside the candidates
// A NaN score and a box that is not finite or not ordered are reported as faults of the stream.
using NmsGpuFunction = void (*)(const NmsGpuArgs&, Stream&);
void nms_gpu(const NmsGpuArgs&, Stream&);

}  // namespace halftone

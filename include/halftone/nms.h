// Non-maximum suppression: of boxes that overlap much, the one with the best score is kept.
#pragma once
#include <limits>
#include <memory>

#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct NmsProblem {
  int64_t boxes = 0;
  Format format = Format::f32;  // of boxes and scores: f32, f16, bf16
  float iou_threshold = 0.5f;   // 0 to 1; suppress a box whose overlap with a better one is above
  float score_threshold = -std::numeric_limits<float>::infinity();  // lower scores are left out
  bool classes = false;  // boxes of different classes leave each other alone
};
struct NmsTensors {
  Tensor boxes;         // [n, 4]: x1 <= x2, y1 <= y2 as x1, y1, x2, y2
  Tensor scores;        // [n]
  Tensor keep;          // i64 [n]: receives the indices of the boxes that stay, best score first
  Tensor count;         // i64 [1]: how many
  Tensor classes = {};  // i32 or i64 [n]
};
struct NmsKernel;
struct NmsWorkspace;
struct NmsPlan {
  NmsProblem problem;
  Device device;
  const NmsKernel* kernel = nullptr;
  std::shared_ptr<NmsWorkspace> workspace;  // a plan serves one run at a time
};
std::string describe(const NmsPlan&);
Support can_run(const NmsProblem&, const Device&);
NmsPlan plan(const NmsProblem&, const Device&);
// Boxes are visited by falling score, equal scores by rising index. One that no kept box suppressed
// is kept; it suppresses those after it with area(a & b) / area(a | b) > iou_threshold, in f32. A
// box that is not finite or not ordered, and a NaN score, are Errors that name its index; on a GPU
// the next Stream::synchronize throws them.
void run(const NmsPlan&, const NmsTensors&, Stream&);

// The indices that stay, i64. classes may be undefined.
Tensor nms(const Tensor& boxes, const Tensor& scores, float iou_threshold,
           const Tensor& classes = {},
           float score_threshold = -std::numeric_limits<float>::infinity(),
           Stream& = Stream::default_stream());
// The definition, pair by pair in FP64.
Tensor nms_reference(const Tensor& boxes, const Tensor& scores, float iou_threshold,
                     const Tensor& classes = {},
                     float score_threshold = -std::numeric_limits<float>::infinity());

}  // namespace halftone

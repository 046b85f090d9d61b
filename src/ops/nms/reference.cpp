// Non-maximum suppression by its definition, pair by pair in FP64.
#include <algorithm>
#include <numeric>
#include <vector>

#include "halftone/nms.h"
#include "halftone/quantize.h"

namespace halftone {

Tensor nms_reference(const Tensor& boxes, const Tensor& scores, float iou_threshold,
                     const Tensor& classes, float score_threshold) {
  const Tensor box = convert(boxes, Format::f32), score = convert(scores, Format::f32);
  const auto label = [&](int64_t i) -> int64_t {
    if (!classes.defined()) return 0;
    const int64_t at = i * classes.stride(0);
    return classes.format() == Format::i64 ? classes.data<int64_t>()[at]
                                           : classes.data<int32_t>()[at];
  };
  std::vector<int64_t> order(static_cast<size_t>(boxes.size(0)));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return score.data<float>()[a] > score.data<float>()[b];
  });
  std::vector<int64_t> kept;
  for (const int64_t i : order) {
    if (!(score.data<float>()[i] >= score_threshold)) continue;
    const float* a = box.data<float>() + 4 * i;
    const bool stays = std::none_of(kept.begin(), kept.end(), [&](int64_t j) {
      const float* b = box.data<float>() + 4 * j;
      const double width = std::max(0.0, double{std::min(a[2], b[2])} - std::max(a[0], b[0]));
      const double height = std::max(0.0, double{std::min(a[3], b[3])} - std::max(a[1], b[1]));
      const auto area = [](const float* c) {
        return (double{c[2]} - c[0]) * (double{c[3]} - c[1]);
      };
      const double both = width * height;
      return label(i) == label(j) && both / (area(a) + area(b) - both) > iou_threshold;
    });
    if (stays) kept.push_back(i);
  }
  return Tensor::from<int64_t>(kept, {static_cast<int64_t>(kept.size())}, Format::i64);
}

}  // namespace halftone

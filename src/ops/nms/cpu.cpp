// Overlaps (IoU) of one box with many on the CPU, compiled for every ISA level. No fused
// multiply-add: every ISA level rounds alike, so that all agree on what lies above the threshold.
#include "ops/nms/kernels.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

void nms_suppress(const NmsArgs& a, int64_t kept, int64_t end) {
  const f32v x1 = broadcast(a.x1[kept]), y1 = broadcast(a.y1[kept]), x2 = broadcast(a.x2[kept]),
             y2 = broadcast(a.y2[kept]), area = broadcast(a.area[kept]);
  const f32v zero{}, threshold = broadcast(a.threshold);
  for (int64_t i = kept + 1; i < end; i += kLanes) {
    const int count = end - i < kLanes ? static_cast<int>(end - i) : kLanes;
    const auto at = [&](const float* p) __attribute__((always_inline)) {
      return count == kLanes ? load_raw<f32v>(p + i) : load_partial<Format::f32>(p, i, count);
    };
    const f32v width = max(min(x2, at(a.x2)) - max(x1, at(a.x1)), zero);
    const f32v height = max(min(y2, at(a.y2)) - max(y1, at(a.y1)), zero);
    const f32v both = width * height;
    i32v gone = both / (area + at(a.area) - both) > threshold;  // 0 / 0 is not
    int32_t lane[kLanes];
    if (a.classes != nullptr) {
      int32_t other[kLanes] = {};
      std::memcpy(other, a.classes + i, static_cast<size_t>(count) * sizeof(int32_t));
      gone &= load_raw<i32v>(other) == broadcast_i32(a.classes[kept]);
    }
    if (!any(gone)) continue;
    store_raw(lane, gone);
    for (int k = 0; k < count; ++k) a.suppressed[i + k] |= lane[k];
  }
}

}  // namespace halftone::HALFTONE_LEVEL

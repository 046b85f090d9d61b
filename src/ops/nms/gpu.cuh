// Non-maximum suppression for every GPU: each box finds its rank by counting the better ones, then
// one CTA walks the boxes in that order.
#pragma once
#include "base/launch.h"
#include "hw/barrier.h"
#include "hw/thread.h"
#include "ops/nms/gpu.h"
#include "pipe/elements.h"
#include "pipe/fault.h"

namespace halftone {

struct NmsSortGpu {
  struct Params {
    NmsGpuArgs args;
    FaultReporter faults;
  };
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1;
  static constexpr uint32_t kSharedBytes = kThreads * sizeof(float);

  HT_DEVICE static bool is_finite(float x) { return x - x == 0; }

  HT_DEVICE static void run(const Params& p) {
    const NmsGpuArgs& args = p.args;
    const uint32_t thread = hw::thread_index().x;
    const int64_t i = int64_t{hw::block_index().x} * kThreads + thread;
    const hw::SharedAddress tile = hw::shared_memory_base();
    const auto score_at = [&](int64_t k) {
      return pipe::load_element(args.format, args.scores + k * args.score_stride);
    };
    const float mine = i < args.n ? score_at(i) : 0;
    if (mine != mine) pipe::report_fault(p.faults, Fault::nms_score, i, 0, 0);
    // Neither is a NaN, nor what lies below the threshold.
    const auto is_candidate = [&](float score) { return score >= args.score_threshold; };
    uint32_t better = 0;
    for (int64_t first = 0; first < args.n; first += kThreads) {
      hw::barrier_sync();
      if (first + thread < args.n) hw::store_shared(tile + thread * 4, score_at(first + thread));
      hw::barrier_sync();
      for (uint32_t k = 0; k < kThreads && first + k < args.n; ++k) {
        const float other = hw::load_shared<float>(tile + k * 4);  // ties by index
        const bool before = other > mine || (other == mine && first + k < i);
        better += is_candidate(other) && before ? 1 : 0;
      }
    }
    if (i >= args.n || !is_candidate(mine)) return;
    hw::reduce_global<hw::Atomic::add>(args.candidates, 1u);
    float b[4];
    HT_UNROLL
    for (uint32_t k = 0; k < 4; ++k) {
      b[k] = pipe::load_element(args.format,
                                args.boxes + i * args.box_stride + k * args.coordinate_stride);
    }
    const bool finite = is_finite(b[0]) && is_finite(b[1]) && is_finite(b[2]) && is_finite(b[3]);
    const bool good = finite && b[0] <= b[2] && b[1] <= b[3];
    if (!good) pipe::report_fault(p.faults, Fault::nms_box, i, 0, 0);
    hw::store_global(args.order + better, static_cast<uint32_t>(i));
    hw::store_global(args.suppressed + better, good ? 0u : 1u);
    hw::store_global(args.x1 + better, b[0]);
    hw::store_global(args.y1 + better, b[1]);
    hw::store_global(args.x2 + better, b[2]);
    hw::store_global(args.y2 + better, b[3]);
    hw::store_global(args.area + better, (b[2] - b[0]) * (b[3] - b[1]));
    const int64_t label =
        args.classes != nullptr
            ? pipe::load_index(args.classes, args.wide_classes, i * args.class_stride)
            : 0;
    hw::store_global(args.labels + better, label);
  }
};

struct NmsWalkGpu {
  using Params = NmsGpuArgs;
  static constexpr uint32_t kThreads = 512, kMinBlocks = 1;

  struct Box {
    float x1, y1, x2, y2, area;
    int64_t label;
  };
  HT_DEVICE static Box box_at(const NmsGpuArgs& args, uint32_t i) {
    return {hw::load_global(args.x1 + i),   hw::load_global(args.y1 + i),
            hw::load_global(args.x2 + i),   hw::load_global(args.y2 + i),
            hw::load_global(args.area + i), hw::load_global(args.labels + i)};
  }
  // In the CPU's order, so that both agree on what lies above the threshold.
  HT_DEVICE static bool overlap(const Box& a, const Box& b, float threshold) {
    const float width = (b.x2 < a.x2 ? b.x2 : a.x2) - (b.x1 > a.x1 ? b.x1 : a.x1);
    const float height = (b.y2 < a.y2 ? b.y2 : a.y2) - (b.y1 > a.y1 ? b.y1 : a.y1);
    const float both = (width > 0 ? width : 0) * (height > 0 ? height : 0);
    return a.label == b.label && both / (a.area + b.area - both) > threshold;
  }

  HT_DEVICE static void run(const NmsGpuArgs& args) {
    const uint32_t thread = hw::thread_index().x, end = hw::load_global(args.candidates);
    int64_t kept = 0;
    for (uint32_t i = 0; i < end; ++i) {
      if (hw::load_global(args.suppressed + i) != 0) continue;  // all threads alike
      if (thread == 0) {
        hw::store_global(args.keep + kept, int64_t{hw::load_global(args.order + i)});
      }
      ++kept;
      const Box best = box_at(args, i);
      for (uint32_t j = i + 1 + thread; j < end; j += kThreads) {
        if (overlap(best, box_at(args, j), args.iou_threshold)) {
          hw::store_global(args.suppressed + j, 1u);
        }
      }
      hw::barrier_sync();
    }
    if (thread == 0) hw::store_global(args.count, kept);
  }
};

}  // namespace halftone

// The largest logit of each row and the sum of exp(logit - largest), for every GPU: several CTAs
// share a row, each has a segment of it.
#pragma once
#include "base/launch.h"
#include "hw/atomic.h"
#include "hw/barrier.h"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "hw/warp.h"
#include "ops/sampling/portable_math.h"
#include "pipe/elements.h"
#include "pipe/order_key.h"
#include "pipe/row_threads.h"

namespace halftone {

struct LogitRows {
  const char* base;
  int64_t row_stride, column_stride;  // bytes
  Format format;
  int64_t vocabulary, stretch;  // columns of a CTA
  uint64_t* best;               // [rows], 0 before
  double* sums;                 // [rows, CTAs of a row]
};

struct LargestLogitGpu {
  using Params = LogitRows;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1;
  // Two eights a thread; the stretches of a row depend on its length alone, and so do its bits.
  static constexpr int64_t kStretch = 16 * kThreads;

  HT_DEVICE static void run(const LogitRows& p) {
    hw::launch_dependents_and_wait();
    const uint32_t thread = hw::thread_index().x;
    const int64_t row = hw::block_index().y, begin = hw::block_index().x * p.stretch;
    const int64_t end = begin + p.stretch < p.vocabulary ? begin + p.stretch : p.vocabulary;
    const char* x = p.base + row * p.row_stride;
    const bool no_gaps = p.column_stride == pipe::bytes_of(p.format);
    uint64_t best = 0;
    for (int64_t first = begin + 8 * thread; first < end; first += 8 * kThreads) {
      float v[8];
      if (no_gaps) pipe::load_eight(p.format, x, {first, first + 4}, end, v);
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        if (first + i >= end) continue;
        if (!no_gaps) v[i] = pipe::load_element(p.format, x + (first + i) * p.column_stride);
        const uint64_t key = pipe::order_key(v[i], first + i);
        best = key > best ? key : best;
      }
    }
    pipe::RowThreads threads(kThreads);
    best = threads.reduce(best, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
    if (thread == 0) hw::reduce_global<hw::Atomic::max>(p.best + row, best);
  }
};

struct LogitSumGpu {
  using Params = LogitRows;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1;
  static constexpr uint32_t kSharedBytes = kThreads * sizeof(double);

  HT_DEVICE static void run(const LogitRows& p) {
    hw::launch_dependents_and_wait();
    const uint32_t thread = hw::thread_index().x;
    const int64_t row = hw::block_index().y, begin = hw::block_index().x * p.stretch;
    const int64_t end = begin + p.stretch < p.vocabulary ? begin + p.stretch : p.vocabulary;
    const char* x = p.base + row * p.row_stride;
    const double largest = pipe::number_of_key(hw::load_global(p.best + row));
    double sum = 0;
    for (int64_t i = begin + thread; i < end; i += kThreads) {
      const float logit = pipe::load_element(p.format, x + i * p.column_stride);
      sum += portable_exp(static_cast<double>(logit) - largest);
    }
    // By halving: a fixed order.
    const hw::SharedAddress sums = hw::shared_memory_base();
    hw::store_shared(sums + thread * 8, sum);
    for (uint32_t half = kThreads / 2; half > 0; half /= 2) {
      hw::barrier_sync();
      if (thread < half) {
        sum += hw::load_shared<double>(sums + (thread + half) * 8);
        hw::store_shared(sums + thread * 8, sum);
      }
    }
    if (thread == 0) {
      hw::store_global(p.sums + row * hw::grid_size().x + hw::block_index().x, sum);
    }
  }
};

}  // namespace halftone

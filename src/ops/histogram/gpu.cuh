// Histograms for every GPU: a CTA counts its share in shared memory where the bins fit, then adds
// its counts to the total; else every element is an atomic addition to global memory.
#pragma once
#include "formats/gpu/rows.cuh"
#include "hw/barrier.h"
#include "hw/thread.h"
#include "ops/histogram/gpu.h"
#include "pipe/fault.h"

namespace halftone {

struct HistogramGpu {
  struct Params {
    HistogramGpuArgs args;
    FaultReporter faults;
  };
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1;
  static constexpr int64_t kOwnBins = 4096;  // 16 KB: eight CTAs share a multiprocessor

  static bool counts_apart(const HistogramGpuArgs& args) { return args.bins <= kOwnBins; }

  // -1: outside the edges; -2: not a number, or without edges outside the bins.
  HT_DEVICE static int64_t bin_of(const HistogramGpuArgs& args, float v) {
    if (args.edges == nullptr) {
      return v >= 0 && v < static_cast<float>(args.bins) ? static_cast<int64_t>(v) : -2;
    }
    if (v != v) return -2;
    if (!(v >= hw::load_global(args.edges) && v <= hw::load_global(args.edges + args.bins))) {
      return -1;
    }
    // The last edge that is not above v, by binary search.
    int64_t first = 0;
    for (int64_t n = args.bins; n > 1;) {
      const int64_t half = n / 2;
      if (hw::load_global(args.edges + first + half) <= v) first += half;
      n -= half;
    }
    return first;
  }

  HT_DEVICE static void run(const Params& p) {
    const HistogramGpuArgs& args = p.args;
    const uint32_t thread = hw::thread_index().x;
    const int64_t first = int64_t{hw::block_index().x} * kThreads + thread;
    const int64_t step = int64_t{hw::grid_size().x} * kThreads;
    const int64_t columns = args.x.codes.columns, eights = (columns + 7) / 8;
    const int64_t count = args.elements == 0 ? 0 : args.elements / columns * eights;
    const bool apart = args.bins <= kOwnBins;
    const auto bins = static_cast<uint32_t>(args.bins);
    const hw::SharedAddress own = hw::shared_memory_base();
    if (apart) {
      for (uint32_t bin = thread; bin < bins; bin += kThreads) hw::store_shared(own + bin * 4, 0u);
      hw::barrier_sync();
    }
    for (int64_t i = first; args.edges != nullptr && i < args.bins; i += step) {
      if (!(hw::load_global(args.edges + i) <= hw::load_global(args.edges + i + 1))) {
        pipe::report_fault(p.faults, Fault::histogram_edge, i, 0, 0);
      }
    }
    for (int64_t n = first; n < count; n += step) {
      const int64_t row = count == eights ? 0 : n / eights, column = (n - row * eights) * 8;
      float x[8];
      load_numbers(args.x, row, {column, column + 4}, x);
      for (uint32_t i = 0; i < 8 && column + i < columns; ++i) {
        const int64_t bin = bin_of(args, x[i]);
        if (bin == -2) {
          pipe::report_fault(p.faults, Fault::histogram_value, row * columns + column + i,
                             std::bit_cast<int32_t>(x[i]), args.edges != nullptr ? 0 : args.bins);
        } else if (bin >= 0 && apart) {
          hw::reduce_shared<hw::Atomic::add>(own + static_cast<uint32_t>(bin) * 4, 1u);
        } else if (bin >= 0) {
          hw::reduce_global<hw::Atomic::add>(args.counts + bin, uint64_t{1});
        }
      }
    }
    if (!apart) return;
    hw::barrier_sync();
    for (uint32_t bin = thread; bin < bins; bin += kThreads) {
      const auto count = hw::load_shared<uint32_t>(own + bin * 4);
      if (count != 0) hw::reduce_global<hw::Atomic::add>(args.counts + bin, uint64_t{count});
    }
  }
};

}  // namespace halftone

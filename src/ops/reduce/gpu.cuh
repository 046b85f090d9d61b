// Reductions of plain floats. Eight elements are summed in f32, eights and threads in f64: the
// order of the sums costs no accuracy, however long the row.
#pragma once
#include "ops/reduce/gpu.h"
#include "pipe/elements.h"
#include "pipe/order_key.h"
#include "pipe/row_threads.h"

namespace halftone {

struct ReduceAccumulator {
  double sum = 0;
  uint64_t best = 0;

  HT_DEVICE static bool is_extreme(Reduction r) {
    return r == Reduction::max || r == Reduction::min || is_arg(r);
  }
  HT_DEVICE static bool is_arg(Reduction r) {
    return r == Reduction::argmax || r == Reduction::argmin;
  }
  HT_DEVICE static bool is_least(Reduction r) {
    return r == Reduction::min || r == Reduction::argmin;
  }
  HT_DEVICE void take_extreme(Reduction r, float x, int64_t index) {
    const uint64_t key = pipe::order_key(is_least(r) ? -x : x, index);
    best = key > best ? key : best;
  }
  // What an element adds to a sum of f32.
  HT_DEVICE static float add(Reduction r, float sum, float x, float y) {
    if (r == Reduction::sum_of_squares) return hw::fma(x, x, sum);
    return r == Reduction::dot ? hw::fma(x, y, sum) : sum + x;
  }
  HT_DEVICE void store(const ReduceGpuArgs& args, int64_t at) const {
    const Reduction r = args.operation;
    if (is_arg(r)) {
      hw::store_global(reinterpret_cast<int64_t*>(args.out) + at, pipe::index_of_key(best));
      return;
    }
    float value = pipe::number_of_key(best);
    if (is_extreme(r)) {
      value = is_least(r) ? -value : value;
    } else {
      value = static_cast<float>(r == Reduction::mean ? sum / static_cast<double>(args.n) : sum);
    }
    pipe::store_element(args.out_format, args.out + at * pipe::bytes_of(args.out_format), value);
  }
};

// Along the last dimension: the threads of a row share it.
struct ReduceRowsGpu {
  struct Params {
    ReduceGpuArgs args;
    uint32_t row_threads;
  };
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 1;

  HT_DEVICE static void run(const Params& p) {
    const ReduceGpuArgs& args = p.args;
    const Reduction r = args.operation;
    pipe::RowThreads threads(p.row_threads);
    const int64_t row = threads.row(), n = row < args.outer ? args.n : 0;
    const bool extreme = ReduceAccumulator::is_extreme(r);
    ReduceAccumulator total;
    for (uint32_t step = 0;; ++step) {
      const pipe::Quads at = pipe::quads_of(args.x_format, threads.rank(), threads.threads(), step);
      if (at.first >= n) break;
      float x[8], y[8] = {}, sum = 0;
      pipe::load_eight(args.x_format, args.x + row * args.n * pipe::bytes_of(args.x_format), at, n,
                       x);
      if (r == Reduction::dot) {
        pipe::load_eight(args.y_format, args.y + row * args.n * pipe::bytes_of(args.y_format), at,
                         n, y);
      }
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        if (extreme && at.column(i) < n) total.take_extreme(r, x[i], at.column(i));
        sum = ReduceAccumulator::add(r, sum, x[i], y[i]);  // elements beyond the row are 0
      }
      total.sum += sum;
    }
    if (extreme) {
      total.best = threads.reduce(total.best, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
    } else {
      total.sum = threads.reduce(total.sum, [](double a, double b) { return a + b; });
    }
    if (row < args.outer && threads.rank() == 0) total.store(args, row);
  }
};

// Along another dimension: a thread has a column, and neighbours read neighbours.
struct ReduceColumnsGpu {
  using Params = ReduceGpuArgs;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;

  HT_DEVICE static void run(const ReduceGpuArgs& args) {
    const int64_t at = int64_t{hw::block_index().x} * kThreads + hw::thread_index().x;
    if (at >= args.outer * args.inner) return;
    const Reduction r = args.operation;
    const bool extreme = ReduceAccumulator::is_extreme(r);
    const int64_t first = at / args.inner * args.n * args.inner + at % args.inner;
    const auto element = [&](Format f, const char* base, int64_t i) {
      return pipe::load_element(f, base + (first + i * args.inner) * pipe::bytes_of(f));
    };
    ReduceAccumulator total;
    for (int64_t i = 0; i < args.n; i += 8) {
      float x[8] = {}, y[8] = {}, sum = 0;
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) {
        if (i + k < args.n) x[k] = element(args.x_format, args.x, i + k);
        if (r == Reduction::dot && i + k < args.n) y[k] = element(args.y_format, args.y, i + k);
      }
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) {
        if (extreme && i + k < args.n) total.take_extreme(r, x[k], i + k);
        sum = ReduceAccumulator::add(r, sum, x[k], y[k]);
      }
      total.sum += sum;
    }
    total.store(args, at);
  }
};

}  // namespace halftone

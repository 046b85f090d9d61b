// Softmax of rows: rows of up to 8192 elements are read once and stay in registers, where each
// exponential is computed once; what is longer is read again, from the L2.
#pragma once
#include "ops/softmax/kernels.h"
#include "pipe/access.h"
#include "pipe/math.h"
#include "pipe/row_threads.h"

namespace halftone {

struct SoftmaxGpuParams {
  SoftmaxArgs args;
  int64_t rows;
  uint32_t row_threads;
};

template <pipe::Access kAccess>
struct SoftmaxGpu {
  using Params = SoftmaxGpuParams;
  using Eight = pipe::Eight<kAccess>;
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 2;
  static constexpr uint32_t kKept = 2;  // eights of a thread that stay in registers
  static constexpr float kLowest = -__builtin_huge_valf();

  HT_DEVICE static void run(const Params& p) {
    // As on the CPU: results of 16 bits take the shorter exponential.
    p.args.out_format == Format::f32 ? softmax<false>(p) : softmax<true>(p);
  }

  template <bool kHalf>
  HT_DEVICE static void softmax(const Params& p) {
    const SoftmaxArgs& args = p.args;
    const Format f = pipe::format_of(kAccess, args.format);
    pipe::RowThreads threads(p.row_threads);
    const int64_t row = threads.row();
    const int64_t columns = row < p.rows ? args.columns : 0;
    const char* x = columns > 0 ? args.x[row] : nullptr;
    const auto place = [&](uint32_t step) {
      return pipe::quads_of(f, threads.rank(), threads.threads(), step);
    };
    // Elements beyond the row count as -infinity.
    const auto widen = [&](uint32_t step, const Eight& read, float(&v)[8]) {
      read.widen(f, v);
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        if (!pipe::is_inside<kAccess>(place(step), i, columns)) v[i] = kLowest;
      }
    };
    float kept[kKept][8];
    {
      Eight read[kKept];
      HT_UNROLL
      for (uint32_t step = 0; step < kKept; ++step) read[step].load(f, x, place(step), columns);
      HT_UNROLL
      for (uint32_t step = 0; step < kKept; ++step) widen(step, read[step], kept[step]);
    }
    // Calls each(step, values) for this thread's eights that are not kept.
    const auto for_others = [&](const auto& each) {
      for (uint32_t step = kKept; place(step).first < columns; ++step) {
        Eight read;
        float v[8];
        read.load(f, x, place(step), columns);
        widen(step, read, v);
        each(step, v);
      }
    };

    float top = kLowest;  // NaN is left out: it shows in the sum
    const auto raise = [&](uint32_t, const float(&v)[8]) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) top = hw::max(top, v[i]);
    };
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) raise(step, kept[step]);
    for_others(raise);
    top = threads.max(top);
    // A row of -inf alone: its terms are 0, or NaN.
    const bool empty = top == kLowest;
    const auto term = [&](float v) {
      return empty ? (v != v ? v : 0) : pipe::exponential<kHalf>((v - top) * args.scale);
    };
    float sum = 0;
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) sum += kept[step][i] = term(kept[step][i]);
    }
    for_others([&](uint32_t, const float(&v)[8]) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) sum += term(v[i]);
    });
    sum = threads.sum(sum);
    const float factor = empty ? sum : 1.0f / sum;
    char* out = columns > 0 ? args.out[row] : nullptr;
    const auto store = [&](uint32_t step, float(&y)[8]) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) y[i] = empty ? factor : y[i] * factor;
      if (kAccess != pipe::Access::any && args.format == args.out_format) {
        Eight result;
        result.narrow(f, y);
        result.store(f, out, place(step), columns);
      } else {
        pipe::store_eight(args.out_format, out, place(step), columns, y);
      }
    };
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) {
      if (place(step).first < columns) store(step, kept[step]);
    }
    for_others([&](uint32_t step, float(&v)[8]) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) v[i] = term(v[i]);
      store(step, v);
    });
  }
};

}  // namespace halftone

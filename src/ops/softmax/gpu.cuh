// Softmax of rows: rows of up to 8192 are read once and stay in registers; of longer ones the rest
// is read again, from the L2.
#pragma once
#include "ops/softmax/kernels.h"
#include "pipe/elements.h"
#include "pipe/math.h"
#include "pipe/row_threads.h"

namespace halftone {

struct SoftmaxGpu {
  struct Params {
    SoftmaxArgs args;
    int64_t rows;
    uint32_t row_threads;
  };
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 1;
  static constexpr uint32_t kKept = 2;  // eights of a thread that stay in registers

  HT_DEVICE static void run(const Params& p) {
    // As on the CPU: results of 16 bits take the shorter exponential.
    p.args.out_format == Format::f32 ? softmax<false>(p) : softmax<true>(p);
  }

  template <bool kHalf>
  HT_DEVICE static void softmax(const Params& p) {
    const SoftmaxArgs& args = p.args;
    pipe::RowThreads threads(p.row_threads);
    const int64_t row = threads.row();
    const int64_t columns = row < p.rows ? args.columns : 0;
    const char* x = columns > 0 ? args.x[row] : nullptr;
    char* out = columns > 0 ? args.out[row] : nullptr;
    const auto place = [&](uint32_t step) {
      return pipe::quads_of(args.format, threads.rank(), threads.threads(), step);
    };
    float kept[kKept][8];
    // Calls each(step, values) for this thread's eights.
    const auto for_eights = [&](const auto& each) {
      HT_UNROLL
      for (uint32_t step = 0; step < kKept; ++step) {
        if (place(step).first < columns) each(step, kept[step]);
      }
      for (uint32_t step = kKept; place(step).first < columns; ++step) {
        float more[8];
        pipe::load_eight(args.format, x, place(step), columns, more);
        each(step, more);
      }
    };
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) {
      if (place(step).first >= columns) continue;
      pipe::load_eight(args.format, x, place(step), columns, kept[step]);
    }

    constexpr float kLowest = -__builtin_huge_valf();
    float top = kLowest;  // NaN is left out: it shows in the sum
    for_eights([&](uint32_t step, const float(&v)[8]) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        if (place(step).column(i) < columns) top = hw::max(top, v[i]);
      }
    });
    top = threads.max(top);
    const auto term = [&](float v) {
      if (top == kLowest) return v != v ? v : 0;  // a row of -inf alone: its sum is 0 or NaN
      return pipe::exponential<kHalf>((v - top) * args.scale);
    };
    float sum = 0;
    for_eights([&](uint32_t step, const float(&v)[8]) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        if (place(step).column(i) < columns) sum += term(v[i]);
      }
    });
    sum = threads.sum(sum);
    const float factor = top == kLowest ? sum : 1.0f / sum;
    for_eights([&](uint32_t step, const float(&v)[8]) {
      float y[8];
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) y[i] = top == kLowest ? factor : term(v[i]) * factor;
      pipe::store_eight(args.out_format, out, place(step), columns, y);
    });
  }
};

}  // namespace halftone

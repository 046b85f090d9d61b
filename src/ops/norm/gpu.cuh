// RMS and layer norm of rows. A row is read once: its elements stay in registers from the
// statistics to the result. What is longer than they hold is read again, from the L2.
#pragma once
#include <cmath>

#include "ops/norm/kernels.h"
#include "pipe/elements.h"
#include "pipe/row_threads.h"

namespace halftone {

struct NormGpu {
  struct Params {
    NormArgs args;
    int64_t rows;
    uint32_t row_threads;
  };
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 1;
  static constexpr uint32_t kKept = 2;  // eights of a thread: rows of 8192 are read once

  HT_DEVICE static void run(const Params& p) {
    const NormArgs& args = p.args;
    pipe::RowThreads threads(p.row_threads);
    const int64_t row = threads.row();
    const bool live = row < p.rows;
    const int64_t columns = live ? args.columns : 0;
    const bool sums = args.residual.base != nullptr;
    const char* x = live ? args.x[row] : nullptr;
    char* sum_row = live && sums ? args.sum[row] : nullptr;
    const char* residual = live && sums ? args.residual[row] : nullptr;
    const Format f = args.format;
    const auto place = [&](uint32_t step) {
      return pipe::quads_of(f, threads.rank(), threads.threads(), step);
    };

    float kept[kKept][8], more[8];
    // With a residual the sum is normalised as it is stored, so that the fused operation equals
    // the separate ones.
    const auto read = [&](uint32_t step, float(&v)[8]) {
      const pipe::Quads at = place(step);
      pipe::load_eight(f, x, at, columns, v);
      if (!sums) return;
      float add[8];
      pipe::load_eight(f, residual, at, columns, add);
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) v[i] = pipe::rounded(f, v[i] + add[i]);
      pipe::store_eight(f, sum_row, at, columns, v);
    };
    const auto again = [&](uint32_t step, float(&v)[8]) {
      pipe::load_eight(f, sums ? sum_row : x, place(step), columns, v);
    };
    // Calls each(step, values) for this thread's eights; `first` reads those that are not kept.
    const auto for_eights = [&](const auto& first, const auto& each) {
      HT_UNROLL
      for (uint32_t step = 0; step < kKept; ++step) {
        if (place(step).first < columns) each(step, kept[step]);
      }
      for (uint32_t step = kKept; place(step).first < columns; ++step) {
        first(step, more);
        each(step, more);
      }
    };

    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) {
      if (place(step).first < columns) read(step, kept[step]);
    }
    const auto count = static_cast<float>(args.columns);
    float mean = 0, squares = 0;
    if (args.layer) {
      float total = 0;
      for_eights(read, [&](uint32_t, const float(&v)[8]) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) total += v[i];
      });
      mean = threads.sum(total) / count;
      for_eights(again, [&](uint32_t step, const float(&v)[8]) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) {
          const float apart = place(step).column(i) < columns ? v[i] - mean : 0;
          squares = hw::fma(apart, apart, squares);
        }
      });
    } else {
      for_eights(read, [&](uint32_t, const float(&v)[8]) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) squares = hw::fma(v[i], v[i], squares);
      });
    }
    const float scale = 1.0f / sqrtf(threads.sum(squares) / count + args.eps);

    for_eights(again, [&](uint32_t step, const float(&v)[8]) {
      const pipe::Quads at = place(step);
      float y[8], factor[8];
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) y[i] = (v[i] - mean) * scale;
      if (args.weight != nullptr) {
        pipe::load_eight(args.weight_format, static_cast<const char*>(args.weight), at, columns,
                         factor);
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) y[i] = y[i] * (factor[i] + args.weight_offset);
      }
      if (args.bias != nullptr) {
        pipe::load_eight(args.weight_format, static_cast<const char*>(args.bias), at, columns,
                         factor);
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) y[i] = y[i] + factor[i];
      }
      pipe::store_eight(f, args.out[row], at, columns, y);
    });
  }
};

}  // namespace halftone

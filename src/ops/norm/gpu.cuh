// RMS and layer norm of rows. A row is read once: its elements stay in registers from the
// statistics to the result. What is longer than they hold is read again, from the L2.
#pragma once
#include <cmath>

#include "ops/norm/kernels.h"
#include "pipe/access.h"
#include "pipe/row_threads.h"

namespace halftone {

struct NormGpuParams {
  NormArgs args;
  int64_t rows;
  uint32_t row_threads;
};

template <pipe::Access kAccess>
struct NormGpu {
  using Params = NormGpuParams;
  using Eight = pipe::Eight<kAccess>;
  // Resident ones: 80 registers where elements have 16 bits, else 128.
  static constexpr bool kHalf = kAccess == pipe::Access::bf16 || kAccess == pipe::Access::f16;
  static constexpr uint32_t kThreads = kHalf ? 768 : 512, kMinBlocks = 1;
  static constexpr uint32_t kKept = 2;  // eights of a thread: rows of 8192 are read once

  HT_DEVICE static void run(const Params& p) {
    const NormArgs& args = p.args;
    pipe::RowThreads threads(p.row_threads);
    const Format f = pipe::format_of(kAccess, args.format);
    const bool sums = args.residual.base != nullptr;
    const auto place = [&](uint32_t step) {
      return pipe::quads_of(f, threads.rank(), threads.threads(), step);
    };
    const auto load = [&](int64_t row, uint32_t step, Eight& v, Eight& other) {
      if (row >= p.rows) return;
      v.load(f, args.x[row], place(step), args.columns);
      if (sums) other.load(f, args.residual[row], place(step), args.columns);
    };
    // The weight serves all of the block's rows; rows come while the ones ahead are computed.
    Eight next[kKept], next_residual[kKept];
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) {
      load(threads.row(), step, next[step], next_residual[step]);
    }
    float weight[kKept][8];
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) load_weight(args, place(step), weight[step]);
    const int64_t stride = threads.rows_of_grid();
    for (int64_t first = threads.first_row(); first < p.rows; first += stride) {
      const int64_t row = first + threads.row() - threads.first_row();
      Eight kept[kKept], residual[kKept];
      HT_UNROLL
      for (uint32_t step = 0; step < kKept; ++step) {
        kept[step] = next[step], residual[step] = next_residual[step];
        load(row + stride, step, next[step], next_residual[step]);
      }
      norm(p, threads, row, kept, residual, weight, place, load);
    }
  }

  HT_DEVICE static void load_weight(const NormArgs& args, const pipe::Quads& at, float (&w)[8]) {
    if (args.weight == nullptr || at.first >= args.columns) return;
    pipe::load_eight(args.weight_format, static_cast<const char*>(args.weight), at, args.columns,
                     w);
  }

  // A row whose first eights, and those of its residual, are there.
  template <class Place, class Load>
  HT_DEVICE static void norm(const Params& p, pipe::RowThreads& threads, int64_t row,
                             Eight (&kept)[kKept], const Eight (&residual)[kKept],
                             const float (&weight)[kKept][8], const Place& place,
                             const Load& load) {
    const NormArgs& args = p.args;
    const Format f = pipe::format_of(kAccess, args.format);
    const bool live = row < p.rows, sums = args.residual.base != nullptr;
    const int64_t columns = live ? args.columns : 0;
    char* sum_row = live && sums ? args.sum[row] : nullptr;
    // With a residual the sum is normalised as it is stored, so that the fused operation equals
    // the separate ones.
    const auto add = [&](uint32_t step, Eight& v, const Eight& other) {
      if (!sums) return;
      float a[8], b[8];
      v.widen(f, a);
      other.widen(f, b);
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) a[i] = a[i] + b[i];
      v.narrow(f, a);
      v.store(f, sum_row, place(step), columns);
    };
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) add(step, kept[step], residual[step]);

    // Calls each(step, values, weights) for this thread's eights; what is not kept is read, for the
    // `first` time or once more.
    const auto for_eights = [&](bool first, const auto& each) {
      float v[8], w[8] = {};
      HT_UNROLL
      for (uint32_t step = 0; step < kKept; ++step) {
        kept[step].widen(f, v);
        if (place(step).first < columns) each(step, v, weight[step]);
      }
      for (uint32_t step = kKept; place(step).first < columns; ++step) {
        Eight more, other;
        if (first) {
          load(row, step, more, other);
          add(step, more, other);
        } else {
          more.load(f, sums ? sum_row : args.x[row], place(step), columns);
          load_weight(args, place(step), w);
        }
        more.widen(f, v);
        each(step, v, w);
      }
    };

    const auto count = static_cast<float>(args.columns);
    float mean = 0, squares = 0;
    if (args.layer) {
      float total = 0;
      for_eights(true, [&](uint32_t, const float(&v)[8], const float(&)[8]) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) total += v[i];
      });
      mean = threads.sum(total) / count;
      for_eights(false, [&](uint32_t step, const float(&v)[8], const float(&)[8]) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) {
          const float apart = pipe::is_inside<kAccess>(place(step), i, columns) ? v[i] - mean : 0;
          squares = hw::fma(apart, apart, squares);
        }
      });
    } else {
      for_eights(true, [&](uint32_t, const float(&v)[8], const float(&)[8]) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) squares = hw::fma(v[i], v[i], squares);
      });
    }
    const float scale = 1.0f / sqrtf(threads.sum(squares) / count + args.eps);

    char* out = live ? args.out[row] : nullptr;
    for_eights(false, [&](uint32_t step, const float(&v)[8], const float(&w)[8]) {
      const pipe::Quads at = place(step);
      float y[8];
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) y[i] = (v[i] - mean) * scale;
      if (args.weight != nullptr) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) y[i] = y[i] * (w[i] + args.weight_offset);
      }
      if (args.bias != nullptr) {
        float bias[8];
        pipe::load_eight(args.weight_format, static_cast<const char*>(args.bias), at, columns,
                         bias);
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) y[i] = y[i] + bias[i];
      }
      Eight result;
      result.narrow(f, y);
      result.store(f, out, at, columns);
    });
  }
};

}  // namespace halftone

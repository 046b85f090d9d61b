// RMS norm and layer norm of rows for every GPU. A row is read once: its elements stay in registers
// from the statistics to the result. What does not fit in registers is read again, from L2.
#pragma once
#include <cmath>

#include "formats/gpu/row_codes.cuh"
#include "hw/griddep.h"
#include "ops/norm/kernels.h"
#include "pipe/access.h"
#include "pipe/row_pieces.h"

namespace halftone {

struct NormGpuParams {
  NormArgs args;
  int64_t rows;
  uint32_t row_threads;
  bool same_weight;  // of the row's format, and aligned to 16 bytes
};

template <pipe::Access kAccess>
struct NormGpu {
  using Params = NormGpuParams;
  // For 16-bit elements: 48 registers, and five resident CTAs of 256 threads.
  static constexpr bool kHalf = kAccess == pipe::Access::bf16 || kAccess == pipe::Access::f16;
  static constexpr uint32_t kThreads = kHalf ? 640 : pipe::kMostRowThreads;
  static constexpr uint32_t kMinBlocks = kHalf ? 2 : 1;
  static constexpr uint32_t kKept = 2;  // eights of a thread: rows of 8192 are read once

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const NormArgs& args = p.args;
    pipe::RowThreads threads(p.row_threads);
    const int64_t row = threads.row();
    const bool live = row < p.rows;
    const int64_t columns = live ? args.columns : 0;
    const bool sums = args.residual.base != nullptr;
    const char* x = live ? args.x[row] : nullptr;
    char* sum_row = live && sums ? args.sum[row] : nullptr;
    const char* residual = live && sums ? args.residual[row] : nullptr;
    const Format f = pipe::format_of(kAccess, args.format);
    using Eight = pipe::Eight<kAccess>;
    const auto place = [&](uint32_t step) {
      return pipe::quads_of(f, threads.rank(), threads.threads(), step);
    };

    Eight kept[kKept], add[kKept];
    const auto load = [&](uint32_t step, Eight& v, Eight& other) {
      v.load(f, x, place(step), columns);
      if (sums) other.load(f, residual, place(step), columns);
    };
    // With a residual the sum is normalised as it is stored, so that the fused operation equals the
    // separate ones.
    const auto finish_load = [&](uint32_t step, Eight& v, const Eight& other) {
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
    for (uint32_t step = 0; step < kKept; ++step) load(step, kept[step], add[step]);
    // A weight of the row's format is loaded together with the row.
    const auto* weight = static_cast<const char*>(args.weight);
    Eight weights[kKept];
    if (p.same_weight) {
      HT_UNROLL
      for (uint32_t step = 0; step < kKept; ++step) {
        weights[step].load(f, weight, place(step), columns);
      }
    }
    const auto weight_of = [&](uint32_t step, const Eight& near, float(&w)[8]) {
      if (p.same_weight && step < kKept) return near.widen(f, w);
      pipe::load_eight(args.weight_format, weight, place(step), columns, w);
    };
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) finish_load(step, kept[step], add[step]);

    // Calls each(step, values, weights) for this thread's eights; what is not kept in registers is
    // read, for the `first` time or again.
    const auto for_eights = [&](bool first, const auto& each) {
      float v[8];
      HT_UNROLL
      for (uint32_t step = 0; step < kKept; ++step) {
        kept[step].widen(f, v);
        if (place(step).first < columns) each(step, v, weights[step]);
      }
      for (uint32_t step = kKept; place(step).first < columns; ++step) {
        Eight more, other;
        if (first) {
          load(step, more, other);
          finish_load(step, more, other);
        } else {
          more.load(f, sums ? sum_row : x, place(step), columns);
        }
        more.widen(f, v);
        each(step, v, weights[0]);
      }
    };

    const auto count = static_cast<float>(args.columns);
    float mean = 0, squares = 0;
    if (args.layer) {
      float total = 0;
      for_eights(true, [&](uint32_t, const float(&v)[8], const Eight&) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) total += v[i];
      });
      mean = threads.sum(total) / count;
      for_eights(false, [&](uint32_t step, const float(&v)[8], const Eight&) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) {
          const float deviation =
              pipe::is_inside<kAccess>(place(step), i, columns) ? v[i] - mean : 0;
          squares = hw::fma(deviation, deviation, squares);
        }
      });
    } else {
      for_eights(true, [&](uint32_t, const float(&v)[8], const Eight&) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) squares = hw::fma(v[i], v[i], squares);
      });
    }
    const float scale = 1.0f / sqrtf(threads.sum(squares) / count + args.eps);

    char* out = live ? args.out[row] : nullptr;
    for_eights(false, [&](uint32_t step, const float(&v)[8], const Eight& near) {
      const pipe::Quads at = place(step);
      float y[8];
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) y[i] = (v[i] - mean) * scale;
      if (weight != nullptr) {
        float w[8];
        weight_of(step, near, w);
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

struct NormQuantizeParams : NormGpuParams {
  RowCodesArgs codes;
};

// Whole rows of up to kPieces 16-byte pieces a thread, which stay in registers; an instance for
// each kind of norm. Sums are those of NormGpu: a thread has the elements of one of its threads, or
// (kTwo) its even pieces are of one and its odd ones of another. Codes: RowCodes, for fused
// quantisation; such an instance is for norms of every kind.
template <pipe::Access kAccess, bool kLayer, bool kSums, uint32_t kPieces, bool kTwo = false,
          class Codes = void>
struct NormWholeGpu {
  static constexpr bool kQuantised = !std::is_void_v<Codes>;
  using Params = std::conditional_t<kQuantised, NormQuantizeParams, NormGpuParams>;
  using Piece = pipe::Piece<kAccess>;
  static constexpr uint32_t kElements = Piece::kElements;
  static constexpr uint32_t kThreads = pipe::kMostRowThreads;
  static constexpr uint32_t kMinBlocks = kPieces == 8 && kSums ? 1 : 2;
  // Loaded before the statistics where there are registers for them and they have the row's format.
  static constexpr bool kPrefetchWeight = kPieces <= 4, kPrefetchBias = kLayer && kPieces == 2;

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const NormArgs& args = p.args;
    pipe::RowThreads threads(p.row_threads);
    const int64_t row = threads.row();
    const bool live = row < p.rows;
    const pipe::PiecePlaces at(threads,
                               live ? static_cast<uint32_t>(args.columns) * Piece::kBytes : 0);
    const auto place = [&](const Rows& rows) { return live ? pipe::place_of(rows, row) : nullptr; };
    const auto for_pieces = [&](const auto& each) {
      HT_UNROLL
      for (uint32_t k = 0; k < kPieces; ++k) {
        if (at.has(k)) each(k);
      }
    };

    Piece kept[kPieces], weights[kPieces], biases[kPieces];
    const char* x = place(args.x);
    for_pieces([&](uint32_t k) { kept[k].load(x + at[k]); });
    if (kSums && (!kQuantised || args.residual.base != nullptr)) {
      // The sum is normalised as it is stored, so that the fused operation equals the separate
      // ones.
      Piece add[kPieces];
      const char* residual = place(args.residual);
      for_pieces([&](uint32_t k) { add[k].load(residual + at[k]); });
      char* sum_row = place(args.sum);
      for_pieces([&](uint32_t k) {
        float a[kElements], b[kElements];
        kept[k].widen(a);
        add[k].widen(b);
        HT_UNROLL
        for (uint32_t i = 0; i < kElements; ++i) a[i] = a[i] + b[i];
        kept[k].narrow(a);
        kept[k].store(sum_row + at[k]);
      });
    }
    const auto* weight = static_cast<const char*>(args.weight);
    const auto* bias = static_cast<const char*>(args.bias);
    const bool same = args.weight_format == Piece::kFormat;
    if (kPrefetchWeight && same && weight != nullptr) {
      for_pieces([&](uint32_t k) { weights[k].load(weight + at[k]); });
    }

    const auto count = static_cast<float>(args.columns);
    float mean = 0;
    const auto sum_of = [&](const float(&part)[2]) {
      return kTwo ? threads.sum_of_two(part[0], part[1]) : threads.sum(part[0]);
    };
    if (kLayer && (!kQuantised || args.layer)) {
      float total[2] = {};
      for_pieces([&](uint32_t k) {
        float v[kElements];
        kept[k].widen(v);
        HT_UNROLL
        for (uint32_t i = 0; i < kElements; ++i) total[kTwo ? k % 2 : 0] += v[i];
      });
      mean = sum_of(total) / count;
      if (kPrefetchBias && same && bias != nullptr) {
        for_pieces([&](uint32_t k) { biases[k].load(bias + at[k]); });
      }
    }
    float squares[2] = {};
    for_pieces([&](uint32_t k) {
      float v[kElements];
      kept[k].widen(v);
      float& sum = squares[kTwo ? k % 2 : 0];
      HT_UNROLL
      for (uint32_t i = 0; i < kElements; ++i) {
        const float deviation = kLayer ? v[i] - mean : v[i];
        sum = hw::fma(deviation, deviation, sum);
      }
    });
    const float scale = 1.0f / sqrtf(sum_of(squares) / count + args.eps);

    const auto result = [&](uint32_t k) {
      float y[kElements];
      kept[k].widen(y);
      HT_UNROLL
      for (uint32_t i = 0; i < kElements; ++i) y[i] = (kLayer ? y[i] - mean : y[i]) * scale;
      const auto vector = [&](const Piece& here, bool loaded, const char* base,
                              float(&v)[kElements]) {
        if (same && loaded) return here.widen(v);
        pipe::load_aligned(args.weight_format, base, at[k] / Piece::kBytes, v);
      };
      if (weight != nullptr) {
        float w[kElements];
        vector(weights[k], kPrefetchWeight, weight, w);
        HT_UNROLL
        for (uint32_t i = 0; i < kElements; ++i) y[i] = y[i] * (w[i] + args.weight_offset);
      }
      if (bias != nullptr) {
        float b[kElements];
        vector(biases[k], kPrefetchBias, bias, b);
        HT_UNROLL
        for (uint32_t i = 0; i < kElements; ++i) y[i] = y[i] + b[i];
      }
      Piece made;
      made.narrow(y);
      return made;
    };
    if constexpr (kQuantised) {
      Codes codes(p.codes);
      for_pieces([&](uint32_t k) { codes.keep(k, result(k)); });
      codes.store(threads, row, row * args.columns, at, kPieces);
    } else {
      char* out = place(args.out);
      for_pieces([&](uint32_t k) { result(k).store(out + at[k]); });
    }
  }
};

}  // namespace halftone

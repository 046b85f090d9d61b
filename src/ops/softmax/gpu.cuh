// Softmax of rows for every GPU: rows of up to 8192 elements are read once and stay in registers,
// where each exponential is computed once; longer rows are read again, from L2.
#pragma once
#include "hw/cluster.h"
#include "ops/softmax/kernels.h"
#include "pipe/access.h"
#include "pipe/math.h"
#include "pipe/row_pieces.h"

namespace halftone {

// Elements that are summed together: those that the most threads of a row keep.
inline constexpr int64_t kSoftmaxChunk = int64_t{16} * pipe::kMostRowThreads;

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
    // As on the CPU: 16-bit results take the shorter exponential.
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
    // Elements past the row are -inf.
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

    float row_max = kLowest;  // NaN is left out: it shows in the sum
    const auto update_max = [&](uint32_t, const float(&v)[8]) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) row_max = hw::max(row_max, v[i]);
    };
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) update_max(step, kept[step]);
    for_others(update_max);
    row_max = threads.max(row_max);
    // A row of -inf alone: its terms are 0, or NaN, and so are its results.
    const bool empty = row_max == kLowest;
    if (empty) row_max = 0;
    const auto term = [&](float v) {
      return pipe::exponential_of_negative<kHalf>((v - row_max) * args.scale);
    };
    float sum = 0;
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) sum += kept[step][i] = term(kept[step][i]);
    }
    sum = threads.sum(sum);
    // What is not kept is summed by chunks of as many elements, as SoftmaxWholeGpu does.
    const auto chunk = int64_t{8} * kKept * threads.threads();
    for (uint32_t first = kKept; chunk * (first / kKept) < columns; first += kKept) {
      float part = 0;
      for (uint32_t step = first; step < first + kKept && place(step).first < columns; ++step) {
        Eight read;
        float v[8];
        read.load(f, x, place(step), columns);
        widen(step, read, v);
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) part += term(v[i]);
      }
      sum += threads.sum(part);
    }
    const float factor = 1.0f / (empty ? sum + 1 : sum);
    char* out = columns > 0 ? args.out[row] : nullptr;
    const auto store = [&](uint32_t step, float(&y)[8]) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) y[i] = y[i] * factor;
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

// Whose elements a thread of SoftmaxWholeGpu has: of one thread of SoftmaxGpu, 16 in all, of two
// (RowThreads::sum_of_two), or of one where a row of more than 8192 is a cluster's, whose blocks
// take a chunk of 8192 each.
enum class SoftmaxShare : uint8_t { one, two, chunk };

// Whole rows read once. Sums are those of SoftmaxGpu.
template <pipe::Access kAccess, bool kHalf, SoftmaxShare kShare>
struct SoftmaxWholeGpu {
  using Params = SoftmaxGpuParams;
  using Piece = pipe::Piece<kAccess>;
  static constexpr bool kTwo = kShare == SoftmaxShare::two;
  static constexpr uint32_t kElements = Piece::kElements, kPieces = (kTwo ? 32 : 16) / kElements;
  static constexpr uint32_t kThreads = kShare == SoftmaxShare::one ? 640 : 512;  // 48, 64 registers
  static constexpr uint32_t kMinBlocks = 2;
  static constexpr uint32_t kMostBlocks = 8;  // of a cluster
  // Where there are no clusters the kernel is compiled but never launched.
  static constexpr bool kCluster =
      kShare == SoftmaxShare::chunk && hw::ThisTarget::has(hw::Feature::mbarrier_tx);
  // After the shared memory of RowThreads, two numbers that each CTA of a cluster sends the others.
  static constexpr uint32_t kSharedBytes = pipe::RowThreads::kSharedBytes + 2 * kMostBlocks * 4;
  static constexpr float kLowest = -__builtin_huge_valf();

  HT_DEVICE static void run(const Params& p) {
    const SoftmaxArgs& args = p.args;
    if constexpr (kCluster) hw::cluster_arrive_relaxed();
    pipe::RowThreads threads(p.row_threads);
    uint32_t blocks = 1, chunk = 0;
    int64_t row = threads.row();
    if constexpr (kCluster) {
      blocks = hw::cluster_size();
      chunk = hw::cluster_rank();
      row = hw::block_index().x / blocks;
    }
    const bool live = row < p.rows;
    const pipe::PiecePlaces at(
        threads, live ? static_cast<uint32_t>(args.columns) * Piece::kBytes : 0, chunk * kPieces);
    const auto for_pieces = [&](const auto& each) {
      HT_UNROLL
      for (uint32_t k = 0; k < kPieces; ++k) {
        if (at.has(k)) each(k);
      }
    };
    const auto place = [&](const Rows& rows) { return live ? pipe::place_of(rows, row) : nullptr; };

    // Elements past the row are -inf, and their terms 0.
    float kept[kPieces][kElements];
    float row_max = kLowest;  // NaN is left out: it shows in the sum
    {
      Piece read[kPieces];
      HT_UNROLL
      for (uint32_t k = 0; k < kPieces; ++k) read[k] = Piece::filled(kLowest);
      const char* x = place(args.x);
      for_pieces([&](uint32_t k) { read[k].load(x + at[k]); });
      HT_UNROLL
      for (uint32_t k = 0; k < kPieces; ++k) {
        read[k].widen(kept[k]);
        HT_UNROLL
        for (uint32_t i = 0; i < kElements; ++i) row_max = hw::max(row_max, kept[k][i]);
      }
    }
    char* out = place(args.out);
    row_max = threads.max(row_max);
    if constexpr (kCluster) {
      hw::cluster_wait();  // all CTAs have started
      row_max = exchange(row_max, blocks, chunk, 0, [](float a, float b) { return hw::max(a, b); });
    }

    // A row of -inf alone: its terms are 0, or NaN, and so are its results.
    const bool empty = row_max == kLowest;
    if (empty) row_max = 0;
    float part[2] = {};
    HT_UNROLL
    for (uint32_t k = 0; k < kPieces; ++k) {
      HT_UNROLL
      for (uint32_t i = 0; i < kElements; ++i) {
        float& v = kept[k][i];
        v = pipe::exponential_of_negative<kHalf>((v - row_max) * args.scale);
        part[kTwo ? k % 2 : 0] += v;
      }
    }
    float sum = kTwo ? threads.sum_of_two(part[0], part[1]) : threads.sum(part[0]);
    if constexpr (kCluster) {
      sum = exchange(sum, blocks, chunk, 1, [](float a, float b) { return a + b; });
    }
    const float factor = 1.0f / (empty ? sum + 1 : sum);
    for_pieces([&](uint32_t k) {
      float(&y)[kElements] = kept[k];
      HT_UNROLL
      for (uint32_t i = 0; i < kElements; ++i) y[i] = y[i] * factor;
      if (args.out_format == Piece::kFormat) {
        Piece result;
        result.narrow(y);
        result.store(out + at[k]);
      } else {
        pipe::store_aligned(args.out_format, out, at[k] / Piece::kBytes, y);
      }
    });
  }

 private:
  // x of all CTAs of the cluster, combined in order.
  template <class Combine>
  HT_DEVICE static float exchange(float x, uint32_t blocks, uint32_t rank, uint32_t slot,
                                  Combine combine) {
    static_assert(kCluster);
    const hw::SharedAddress slots =
        hw::shared_memory_base() + pipe::RowThreads::kSharedBytes + slot * kMostBlocks * 4;
    const uint32_t thread = hw::thread_index().x;
    if (thread < blocks) hw::store_cluster(hw::map_shared_rank(slots + rank * 4, thread), x);
    hw::cluster_arrive();
    hw::cluster_wait();
    x = hw::load_shared<float>(slots);
    HT_UNROLL
    for (uint32_t block = 1; block < kMostBlocks; ++block) {
      if (block < blocks) x = combine(x, hw::load_shared<float>(slots + block * 4));
    }
    return x;
  }
};

}  // namespace halftone

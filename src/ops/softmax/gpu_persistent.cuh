// Softmax of many long whole rows, up to 32768 elements, on sm_90 and later: persistent CTAs go
// from row to row, have one in registers, and the next one in flight to shared memory by bulk
// copies. Sums are added in the order of SoftmaxGpu.
#pragma once
#include "hw/copy/bulk_copy.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "ops/softmax/gpu.cuh"

namespace halftone {

// Groups of 512 threads share a row. With one group a multiprocessor has two CTAs, so that one
// computes while the other waits at its barriers; rows of FP32, which memory binds, lose by it.
template <pipe::Access kAccess, bool kHalf, uint32_t kGroups>
struct SoftmaxPersistentGpu {
  using Params = SoftmaxGpuParams;
  using Piece = pipe::Piece<kAccess>;
  static constexpr uint32_t kElements = Piece::kElements;
  static_assert(kGroups == 1 || kGroups == 2);
  static constexpr uint32_t kThreads = 512 * kGroups, kMinBlocks = 2 / kGroups;
  // The groups take the chunks of 8192 elements round-robin, 16 elements a thread.
  static constexpr uint32_t kGroup = pipe::kMostRowThreads, kPieces = 16 / kElements;
  static constexpr uint32_t kChunk = 16 * kPieces * kGroup, kChunks = 2;  // bytes; of a group
  static constexpr int64_t kColumns = kGroups * kChunks * kSoftmaxChunk;
  // After the shared memory of RowThreads: what the groups exchange, the mbarrier, the row.
  static constexpr uint32_t kExchange = pipe::RowThreads::kSharedBytes;
  static constexpr uint32_t kBarrier = kExchange + 2 * 2 * 8, kRow = 1024;
  // As many for all formats.
  static constexpr uint32_t kSharedBytes = kRow + kColumns * 4;
  static constexpr float kLowest = -__builtin_huge_valf();

  HT_DEVICE static void run(const Params& p) {
    if constexpr (hw::ThisTarget::has(hw::Feature::mbarrier_tx)) softmax(p);
  }

 private:
  using Pair = hw::Vector<float, 2>;

  HT_DEVICE static void softmax(const Params& p) {
    const SoftmaxArgs& args = p.args;
    const uint32_t thread = hw::thread_index().x, group = thread / kGroup;
    const hw::SharedAddress shared = hw::shared_memory_base();
    const hw::Mbarrier loaded{shared + kBarrier};
    const uint32_t bytes = static_cast<uint32_t>(args.columns) * Piece::kBytes;
    pipe::RowThreads threads(kGroup);
    const auto load = [&](int64_t row) {
      const char* x = pipe::place_of(args.x, row);
      hw::mbarrier_arrive_expect_tx(loaded, bytes);
      for (uint32_t at = 0; at < bytes; at += kChunk) {
        hw::bulk_load(shared + (kRow + at), x + at, at + kChunk < bytes ? kChunk : bytes - at,
                      loaded);
      }
    };
    int64_t row = hw::block_index().x;
    if (thread == 0) {
      hw::mbarrier_init(loaded, 1);
      hw::fence_mbarrier_init();
      load(row);
    }
    hw::barrier_sync();

    // The pieces of this thread that exist.
    const auto for_pieces = [&](const auto& each) {
      HT_UNROLL
      for (uint32_t n = 0; n < kChunks * kPieces; ++n) {
        const uint32_t chunk = kGroups * (n / kPieces) + group;
        const uint32_t at = chunk * kChunk + 16 * (n % kPieces * kGroup + threads.rank());
        if (at < bytes) each(n, at);
      }
    };
    const uint32_t blocks = hw::grid_size().x;
    for (uint32_t parity = 0; row < p.rows; row += blocks, parity ^= 1) {
      float kept[kChunks * kPieces][kElements];
      float row_max = kLowest;  // NaN is left out: it shows in the sum
      hw::mbarrier_wait(loaded, parity);
      for_pieces([&](uint32_t n, uint32_t at) {
        Piece read;
        read.words = hw::load_shared<hw::Words4>(shared + (kRow + at));
        read.widen(kept[n]);
      });
      hw::fence_proxy_async_shared();
      hw::barrier_sync();  // all have read
      if (thread == 0 && row + blocks < p.rows) load(row + blocks);
      for_pieces([&](uint32_t n, uint32_t) {
        HT_UNROLL
        for (uint32_t i = 0; i < kElements; ++i) row_max = hw::max(row_max, kept[n][i]);
      });
      row_max = threads.max(row_max);
      if constexpr (kGroups == 2) {
        const Pair tops = exchange(0, group, threads.rank(), {{row_max, 0}})[0];
        row_max = hw::max(tops[0], tops[1]);
      }

      // A row of -inf alone: its terms are 0, or NaN, and so are its results.
      const bool empty = row_max == kLowest;
      if (empty) row_max = 0;
      float part[kChunks] = {};
      for_pieces([&](uint32_t n, uint32_t) {
        HT_UNROLL
        for (uint32_t i = 0; i < kElements; ++i) {
          float& v = kept[n][i];
          v = pipe::exponential_of_negative<kHalf>((v - row_max) * args.scale);
          part[n / kPieces] += v;
        }
      });
      const Pair mine = threads.reduce(Pair{{part[0], part[1]}}, [](Pair a, Pair b) {
        return Pair{{a[0] + b[0], a[1] + b[1]}};
      });
      float sum = mine[0] + mine[1];
      if constexpr (kGroups == 2) {
        const hw::Vector<Pair, 2> sums = exchange(1, group, threads.rank(), mine);
        sum = sums[0][0] + sums[0][1] + sums[1][0] + sums[1][1];
      }
      const float factor = 1.0f / (empty ? sum + 1 : sum);

      char* out = pipe::place_of(args.out, row);
      for_pieces([&](uint32_t n, uint32_t at) {
        float(&y)[kElements] = kept[n];
        HT_UNROLL
        for (uint32_t i = 0; i < kElements; ++i) y[i] = y[i] * factor;
        if (args.out_format == Piece::kFormat) {
          Piece result;
          result.narrow(y);
          result.store(out + at);
        } else {
          pipe::store_aligned(args.out_format, out, at / Piece::kBytes, y);
        }
      });
    }
  }

  // Number i of group g as [i][g].
  HT_DEVICE static hw::Vector<Pair, 2> exchange(uint32_t slot, uint32_t group, uint32_t rank,
                                                Pair x) {
    const hw::SharedAddress told = hw::shared_memory_base() + kExchange + slot * 16;
    if (rank == 0) hw::store_shared(told + group * 8, x);
    hw::barrier_sync();
    const auto all = hw::load_shared<hw::Words4>(told);
    const auto number = [&](uint32_t i) { return std::bit_cast<float>(all[i]); };
    return {{Pair{{number(0), number(2)}}, Pair{{number(1), number(3)}}}};
  }
};

}  // namespace halftone

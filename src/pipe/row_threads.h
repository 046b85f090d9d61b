// The threads that share a row: a power of two of them, several rows a block where rows are short.
// What they reduce is a function of the row's length alone: the same bits in any batch.
#pragma once
#include "base/launch.h"
#include "halftone/dtype.h"
#include "hw/barrier.h"
#include "hw/bits.h"
#include "hw/math.h"
#include "hw/memory.h"
#include "hw/thread.h"
#include "hw/vote.h"
#include "hw/warp.h"

namespace halftone::pipe {

// Eight elements make an access of 16 bytes; two of them in flight a thread hide the latency of
// memory with fewer threads than one would.
inline constexpr uint32_t kMostRowThreads = 512;
inline uint32_t threads_of_row(int64_t columns) {
  uint32_t threads = 4;
  while (threads < kMostRowThreads && int64_t{16} * threads < columns) threads *= 2;
  return threads;
}
// Where there are rows enough, half as many threads keep a row of 16-bit elements, each in place of
// two (RowThreads::sum_of_two): what a reduction costs is shared by 32 elements.
inline bool takes_two(Format f, int64_t rows, uint32_t threads) {
  return f != Format::f32 && threads >= 256 && rows * threads > 128 * 1024;
}

class RowThreads {
 public:
  static constexpr uint32_t kLeastBlock = 128;  // threads: few enough for one row in a hurry
  static constexpr uint32_t kSharedBytes = 2 * 32 * 8;  // of two reductions

  static LaunchShape shape(int64_t rows, uint32_t threads) {
    const uint32_t block = threads < kLeastBlock ? kLeastBlock : threads;
    const int64_t rows_a_block = block / threads;
    return {.grid = {static_cast<uint32_t>((rows + rows_a_block - 1) / rows_a_block), 1, 1},
            .block = {block, 1, 1},
            .shared_bytes = kSharedBytes};
  }

  HT_DEVICE explicit RowThreads(uint32_t threads)
      : threads_(threads),
        shift_(hw::popc(threads - 1)),
        thread_(hw::thread_index().x),
        rank_(thread_ & (threads - 1)),
        scratch_(hw::shared_memory_base()) {}
  HT_DEVICE uint32_t threads() const { return threads_; }
  HT_DEVICE uint32_t rank() const { return rank_; }
  HT_DEVICE int64_t row() const {
    const uint32_t rows_a_block = hw::block_size().x >> shift_;
    return int64_t{hw::block_index().x} * rows_a_block + (thread_ >> shift_);
  }

  // Over the threads of the row; all of the block call it, and all of the row get the result.
  HT_DEVICE float sum(float x, hw::Site site = hw::Site::current()) {
    return reduce(
        x, [](float a, float b) { return a + b; }, site);
  }
  HT_DEVICE float max(float x, hw::Site site = hw::Site::current()) {
    return reduce(
        x, [](float a, float b) { return hw::max(a, b); }, site);
  }
  // As `sum` by twice as many threads does, to the same bits, where this one has the values of two:
  // x of its own, and y of the one threads() further. At least a warp a row.
  HT_DEVICE float sum_of_two(float x, float y, hw::Site site = hw::Site::current()) {
    const auto combine = [](float a, float b) { return a + b; };
    x = reduce_lanes(x, 32, combine, site);
    y = reduce_lanes(y, 32, combine, site);
    const hw::SharedAddress partial = next_partial();
    const uint32_t warps = threads_ / 32, lane = thread_ % 32;
    const hw::SharedAddress row = partial + (thread_ >> shift_) * warps * 8;
    if (lane == 0) {
      hw::store_shared(row + rank_ / 32 * 4, x, site);
      hw::store_shared(row + (rank_ / 32 + warps) * 4, y, site);
    }
    hw::barrier_sync(site);
    x = hw::load_shared<float>(row + (lane & (2 * warps - 1)) * 4, site);
    return reduce_lanes(x, 2 * warps, combine, site);
  }
  // Of values of 4 or 8 bytes.
  template <class T, class Combine>
  HT_DEVICE T reduce(T x, Combine combine, hw::Site site = hw::Site::current()) {
    return reduce_by(
        x, [=](T y, uint32_t lanes) { return reduce_lanes(y, lanes, combine, site); }, site);
  }
  // The largest, by two instructions a warp.
  HT_DEVICE uint64_t largest(uint64_t x, hw::Site site = hw::Site::current()) {
    if (threads_ < 32) {
      return reduce(
          x, [](uint64_t a, uint64_t b) { return a > b ? a : b; }, site);
    }
    return reduce_by(
        x,
        [=](uint64_t y, uint32_t) {
          const auto upper = static_cast<uint32_t>(y >> 32);
          const uint32_t top = hw::redux<hw::Reduction::max>(upper, hw::kFullWarp, site);
          const uint32_t lower = upper == top ? static_cast<uint32_t>(y) : 0;
          return uint64_t{top} << 32 | hw::redux<hw::Reduction::max>(lower, hw::kFullWarp, site);
        },
        site);
  }

 private:
  // by_lanes(x, lanes): over each `lanes` lanes of a warp, which are alike where they are fewer
  // than the row's threads.
  template <class T, class ByLanes>
  HT_DEVICE T reduce_by(T x, const ByLanes& by_lanes, hw::Site site) {
    x = by_lanes(x, threads_ < 32 ? threads_ : 32);
    if (threads_ <= 32) return x;
    const hw::SharedAddress partial = next_partial();
    const uint32_t warps = threads_ / 32, lane = thread_ % 32, bytes = sizeof(T);
    if (lane == 0) hw::store_shared(partial + thread_ / 32 * bytes, x, site);
    hw::barrier_sync(site);
    const uint32_t first = (thread_ >> shift_) * warps;
    x = hw::load_shared<T>(partial + (first + (lane & (warps - 1))) * bytes, site);
    return by_lanes(x, warps);
  }
  // Of the warps, one of two halves: the barrier of the next reduction comes after everybody has
  // read this one.
  HT_DEVICE hw::SharedAddress next_partial() {
    half_ ^= 1;
    return scratch_ + (half_ ^ 1) * (kSharedBytes / 2);
  }
  template <class T>
  HT_DEVICE static T shuffle(T x, uint32_t distance, hw::Site site) {
    if constexpr (sizeof(T) == 4) {
      return hw::shuffle_xor(x, distance, 32, hw::kFullWarp, site);
    } else {
      auto words = std::bit_cast<hw::Vector<uint32_t, 2>>(x);
      words[0] = hw::shuffle_xor(words[0], distance, 32, hw::kFullWarp, site);
      words[1] = hw::shuffle_xor(words[1], distance, 32, hw::kFullWarp, site);
      return std::bit_cast<T>(words);
    }
  }
  template <class T, class Combine>
  HT_DEVICE static T reduce_lanes(T x, uint32_t lanes, Combine combine, hw::Site site) {
    if (lanes == 32) {
      HT_UNROLL
      for (uint32_t distance = 16; distance > 0; distance /= 2) {
        x = combine(x, shuffle(x, distance, site));
      }
      return x;
    }
    for (uint32_t distance = lanes / 2; distance > 0; distance /= 2) {
      x = combine(x, shuffle(x, distance, site));
    }
    return x;
  }

  uint32_t threads_, shift_, thread_, rank_;  // 2^shift_ threads
  hw::SharedAddress scratch_;
  uint32_t half_ = 0;
};

}  // namespace halftone::pipe

// Named barriers of a block as an enum, so that two uses cannot meet on one number by accident:
//   enum class Barrier { softmax_turn, epilogue, count };
//   pipe::sync<Barrier::epilogue>(256);
// Barrier 0 is the whole block's; the enumerators get 1 and up.
#pragma once
#include "hw/barrier.h"

namespace halftone::pipe {

template <auto kBarrier>
HT_HOST_DEVICE uint32_t barrier_number() {
  using Barrier = decltype(kBarrier);
  static_assert(static_cast<int>(Barrier::count) <= 15, "a block has 15 named barriers");
  static_assert(static_cast<int>(kBarrier) >= 0 && kBarrier < Barrier::count,
                "the barrier is an enumerator before `count`");
  return static_cast<uint32_t>(kBarrier) + 1;
}

// Waits until `threads` threads have come to the barrier, by sync or arrive.
template <auto kBarrier>
HT_DEVICE void sync(uint32_t threads, hw::Site site = hw::Site::current()) {
  hw::barrier_sync(barrier_number<kBarrier>(), threads, site);
}
// Counts as arrived and goes on.
template <auto kBarrier>
HT_DEVICE void arrive(uint32_t threads, hw::Site site = hw::Site::current()) {
  hw::barrier_arrive(barrier_number<kBarrier>(), threads, site);
}

// Barriers that come in a row, one per warpgroup or stage: the enumerator names the first, and
// the next `n - 1` enumerators belong to it.
template <auto kFirst, auto kLast>
HT_DEVICE void sync(uint32_t index, uint32_t threads, hw::Site site = hw::Site::current()) {
  static_assert(kFirst < kLast, "a row has at least two barriers");
  static_assert(barrier_number<kLast>() > 0);
  hw::barrier_sync(barrier_number<kFirst>() + index, threads, site);
}
template <auto kFirst, auto kLast>
HT_DEVICE void arrive(uint32_t index, uint32_t threads, hw::Site site = hw::Site::current()) {
  static_assert(kFirst < kLast, "a row has at least two barriers");
  static_assert(barrier_number<kLast>() > 0);
  hw::barrier_arrive(barrier_number<kFirst>() + index, threads, site);
}

}  // namespace halftone::pipe

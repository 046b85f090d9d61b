// Small kernels of the tests, for the GPU and the simulator.
#pragma once
#include "hw/barrier.h"
#include "hw/memory.h"
#include "hw/thread.h"

namespace halftone::test {

struct Scale {
  struct Params {
    const float* in;
    float* out;
    uint32_t count;
    float factor;
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t i = hw::block_index().x * kThreads + hw::thread_index().x;
    if (i < p.count) hw::store_global(p.out + i, p.factor * hw::load_global(p.in + i));
  }
};

// Each block reverses its words by way of all the shared memory it is given.
struct Reverse {
  struct Params {
    uint32_t* words;
    uint32_t block_words;
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress shared = hw::shared_memory_base();
    uint32_t* words = p.words + uint64_t{hw::block_index().x} * p.block_words;
    for (uint32_t i = hw::thread_index().x; i < p.block_words; i += kThreads) {
      hw::store_shared(shared + 4 * i, hw::load_global(words + i));
    }
    hw::barrier_sync();
    for (uint32_t i = hw::thread_index().x; i < p.block_words; i += kThreads) {
      hw::store_global(words + i, hw::load_shared<uint32_t>(shared + 4 * (p.block_words - 1 - i)));
    }
  }
};

// Keeps the device busy for about that time.
struct Busy {
  struct Params {
    uint64_t nanoseconds;
  };
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint64_t begin = hw::global_timer();
    while (hw::global_timer() - begin < p.nanoseconds) hw::nanosleep(1000);
  }
};

struct Trap {
  struct Params {
    uint32_t unused;
  };
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params&) { hw::trap(); }
};

}  // namespace halftone::test

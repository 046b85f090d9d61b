// Greedy decoding step: gives each sequence the token of its largest logit and advances its
// position by one.
#pragma once
#include "ops/sampling/gpu.cuh"
#include "pipe/fault.h"

namespace halftone {

struct NextTokenGpu {
  struct Params {
    uint64_t* best;  // [sequences], reset for the next step
    int32_t *ids, *positions, *lengths, *picked;
    int32_t* counts;  // [sequences, vocabulary] or null
    int64_t vocabulary;
    uint32_t sequences, slots;
    FaultReporter faults;
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const uint32_t sequence = hw::block_index().x * kThreads + hw::thread_index().x;
    if (sequence >= p.sequences) return;
    const uint64_t best = hw::load_global(p.best + sequence);
    const float largest = pipe::number_of_key(best);
    const bool possible = largest - largest == 0;
    const auto token = static_cast<int32_t>(pipe::index_of_key(best));
    const int32_t position = hw::load_global(p.positions + sequence);
    if (!possible) pipe::report_fault(p.faults, Fault::logits, token, sequence, 0);
    const uint32_t slot = static_cast<uint32_t>(position) % p.slots;
    hw::store_global(p.picked + slot * p.sequences + sequence, possible ? token : -1);
    hw::store_global(p.ids + sequence, possible ? token : 0);
    if (possible && p.counts != nullptr) {
      int32_t* const count = p.counts + sequence * p.vocabulary + token;
      hw::store_global(count, hw::load_global(count) + 1);
    }
    hw::store_global(p.positions + sequence, position + 1);
    hw::store_global(p.lengths + sequence, hw::load_global(p.lengths + sequence) + 1);
    hw::store_global(p.best + sequence, uint64_t{0});
  }
};

}  // namespace halftone

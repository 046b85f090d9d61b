// Rings: stages of shared memory that producers fill and consumers empty, with everything that
// makes them safe in one object: the barriers, the stage, its phase and the bytes a stage waits
// for.
//
// sm_90 up, filled by tensor copies; the barriers take Stages::kSharedBytes of shared memory:
//   using Stages = pipe::Ring<4, kStageBytes>;
//   const Stages ring{smem + kBarriers};
//   if (thread == 0) ring.init(1, kConsumers);   // then fence_mbarrier_init and a barrier
//
//   auto fill = ring.producer();                 // one thread
//   for (...) {
//     const pipe::Slot slot = fill.acquire();
//     hw::tensor_load(smem + slot.stage * kStageBytes, &map, {x, y}, slot.full);
//   }
//   fill.drain();
//
//   auto read = ring.consumer();                 // each consumer
//   for (...) {
//     multiply(smem + read.wait() * kStageBytes);
//     read.release();
//   }
//
// A side is a value that its thread owns; nothing else holds a phase.
#pragma once
#include "hw/barrier.h"
#include "hw/cluster.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"

namespace halftone::pipe {

// A stage's number and the parity of its current phase.
template <uint32_t kStages>
class Cursor {
 public:
  HT_DEVICE uint32_t stage() const { return stage_; }
  HT_DEVICE uint32_t phase() const { return phase_; }
  HT_DEVICE void advance() {
    if (++stage_ == kStages) stage_ = 0, phase_ ^= 1;
  }

 private:
  uint32_t stage_ = 0, phase_ = 0;
};
// Where the stages are a power of two both are bits of one counter: a register less.
template <uint32_t kStages>
requires((kStages & (kStages - 1)) == 0) class Cursor<kStages> {
 public:
  HT_DEVICE uint32_t stage() const { return count_ % kStages; }
  HT_DEVICE uint32_t phase() const { return count_ / kStages % 2; }
  HT_DEVICE void advance() { ++count_; }

 private:
  uint32_t count_ = 0;
};

// The same of one of two consumers that share a ring by turns, kRun stages each. Each has stages of
// its own, whatever the round: a stage that others empty says nothing about the phase one waits
// for.
template <uint32_t kStages, uint32_t kRun>
class TurnCursor {
  static_assert(kStages % (2 * kRun) == 0, "both consumers have the same stages in every round");

 public:
  HT_DEVICE explicit TurnCursor(uint32_t consumer) : stage_(consumer * kRun) {}
  HT_DEVICE uint32_t stage() const { return stage_; }
  HT_DEVICE uint32_t phase() const { return phase_; }
  HT_DEVICE void advance() {
    if (++stage_ % kRun == 0) stage_ += kRun;
    if (stage_ >= kStages) stage_ -= kStages, phase_ ^= 1;
  }

 private:
  uint32_t stage_, phase_ = 0;
};

struct Slot {
  uint32_t stage;
  hw::Mbarrier full;  // where the copies into the stage complete
};

// kBytes: what the copies into one stage complete, 0 for stages that threads fill by stores.
// kScope: Scope::cluster where copies are multicast or other blocks release the stages.
template <uint32_t kStages, uint32_t kBytes, hw::Scope kScope = hw::Scope::cta>
struct Ring {
  static_assert(kStages >= 1, "a ring has a stage at least");
  static constexpr uint32_t kSharedBytes = kStages * 16;  // a full and an empty barrier each

  hw::SharedAddress barriers;  // aligned to 8

  HT_DEVICE hw::Mbarrier full(uint32_t stage) const { return {barriers + stage * 8}; }
  HT_DEVICE hw::Mbarrier empty(uint32_t stage) const { return {barriers + (kStages + stage) * 8}; }

  // By one thread. `producers` and `consumers` are arrivals per phase: the threads that call
  // acquire (and commit), and those that call release, in all blocks that release to this one.
  // Others may use the ring after fence_mbarrier_init and a barrier (of the cluster, if blocks
  // share it).
  HT_DEVICE void init(uint32_t producers, uint32_t consumers,
                      hw::Site site = hw::Site::current()) const {
    for (uint32_t i = 0; i < kStages; ++i) {
      hw::mbarrier_init(full(i), producers, site);
      hw::mbarrier_init(empty(i), consumers, site);
    }
    name("full", "empty");
  }
  // What reports of the simulator call the barriers, where a kernel has several rings.
  HT_DEVICE void name(const char* full_name, const char* empty_name) const {
    for (uint32_t i = 0; i < kStages; ++i) {
      hw::name_mbarrier(full(i), full_name, i);
      hw::name_mbarrier(empty(i), empty_name, i);
    }
  }

  class Producer {
   public:
    HT_DEVICE explicit Producer(const Ring& ring) : ring_(ring) {}

    // Waits until the consumers have left the next stage and makes its full barrier expect the
    // stage's bytes. The copies that follow complete there.
    HT_DEVICE Slot acquire(hw::Site site = hw::Site::current()) {
      static_assert(kBytes > 0, "stages filled by stores: wait, then commit");
      const Slot slot = wait(site);
      hw::mbarrier_arrive_expect_tx(slot.full, kBytes, site);
      return slot;
    }
    // For stages that threads fill by stores: waits likewise; `commit` says the stage is full.
    // Where the async proxy reads it, fence_proxy_async_shared comes before.
    HT_DEVICE Slot wait(hw::Site site = hw::Site::current()) {
      const Slot slot{cursor_.stage(), ring_.full(cursor_.stage())};
      // On a fresh barrier the phase before the first has "ended": the first round does not wait.
      hw::mbarrier_wait(ring_.empty(cursor_.stage()), cursor_.phase() ^ 1, site);
      cursor_.advance();
      return slot;
    }
    HT_DEVICE void commit(const Slot& slot, hw::Site site = hw::Site::current()) const {
      hw::mbarrier_arrive(slot.full, site);
    }
    // Waits until every stage has been left, so that no block of the cluster ends while another
    // still arrives here, and so that the barriers may be given up.
    HT_DEVICE void drain(hw::Site site = hw::Site::current()) {
      for (uint32_t i = 0; i < kStages; ++i) static_cast<void>(wait(site));
    }

   private:
    Ring ring_;
    Cursor<kStages> cursor_;
  };

  template <class Place>
  class ConsumerAt {
   public:
    HT_DEVICE explicit ConsumerAt(const Ring& ring, Place first = {})
        : ring_(ring), cursor_(first), released_(first) {}

    // Waits for the next stage's contents.
    HT_DEVICE uint32_t wait(hw::Site site = hw::Site::current()) {
      const uint32_t stage = cursor_.stage();
      // Copies complete at this block's own barrier; only stores come from other blocks' threads.
      constexpr hw::Scope from = kBytes > 0 ? hw::Scope::cta : kScope;
      hw::mbarrier_wait<from>(ring_.full(stage), cursor_.phase(), site);
      cursor_.advance();
      return stage;
    }
    // Gives the oldest stage not yet released back; it may lie behind the last `wait` while
    // asynchronous work still reads newer ones. All threads of a consumer call it; those with
    // `arrives` count. Where threads have read the stage and copies will overwrite it, the PTX
    // wants a fence_proxy_async_shared before (the strict simulator too); kernels in the field
    // leave it out, as the arrival and the wait for it have always sufficed.
    HT_DEVICE void release(bool arrives = true, hw::Site site = hw::Site::current()) {
      const hw::Mbarrier barrier = next_release();
      if (arrives) hw::mbarrier_arrive(barrier, site);
    }
    // The same at the ring of block `rank` of the cluster, whose copies were multicast here. For
    // stages that only asynchronous work has read, and has been waited for: a place is given back,
    // nothing is handed over, so the arrival need not release. One that does, and a wait that
    // acquires from the cluster, are a fence of the GPU and an invalidation of the L1 each.
    HT_DEVICE void release_to(uint32_t rank, bool arrives = true,
                              hw::Site site = hw::Site::current()) {
      static_assert(kScope == hw::Scope::cluster, "the ring is shared by the blocks of a cluster");
      const hw::Mbarrier barrier = next_release();
      if (arrives) {
        hw::mbarrier_arrive_cluster_relaxed(hw::map_shared_rank(barrier.address, rank, site), 1,
                                            site);
      }
    }
    // The barrier to release the oldest stage by, for work that arrives itself (tcgen05.commit). A
    // ring of tensor memory is the same thing: kBytes 0, filled by work that commits to slot.full.
    HT_DEVICE hw::Mbarrier next_release() {
      const hw::Mbarrier barrier = ring_.empty(released_.stage());
      released_.advance();
      return barrier;
    }

   private:
    Ring ring_;
    Place cursor_, released_;
  };
  using Consumer = ConsumerAt<Cursor<kStages>>;
  template <uint32_t kRun>
  using TurnConsumer = ConsumerAt<TurnCursor<kStages, kRun>>;

  HT_DEVICE Producer producer() const { return Producer(*this); }
  HT_DEVICE Consumer consumer() const { return Consumer(*this); }
  // One of two (0 or 1) that take turns of kRun stages.
  template <uint32_t kRun>
  HT_DEVICE TurnConsumer<kRun> turn_consumer(uint32_t which) const {
    return TurnConsumer<kRun>(*this, TurnCursor<kStages, kRun>(which));
  }
};

}  // namespace halftone::pipe

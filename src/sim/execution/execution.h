// State that execution keeps with a block: barriers, collectives under way, the register pool.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/execution/arrivals.h"
#include "sim/execution/barrier.h"
#include "sim/execution/collective.h"
#include "sim/execution/schedule.h"
#include "sim/memory/memory_model.h"

namespace halftone::sim {

inline constexpr uint32_t kNamedBarriers = 16;
inline constexpr uint32_t kMaxWarps = 32;

// Lanes that meet at one instruction. Lives on the stack of the first to arrive until the last has
// run the model.
class Rendezvous final : public Waiting {
 public:
  Rendezvous(const char* instruction, const Site& site, Block& block, uint32_t first_thread,
             bool group, uint32_t mask, const Uniform& uniform, void** operands)
      : Waiting(instruction, site),
        block(block),
        first_thread(first_thread),
        group(group),
        mask(mask),
        uniform(uniform),
        operands(operands) {}
  std::string text() const override;
  const void* key() const override;
  // What the model waits for, when everyone is here and it does.
  const Waiting* model_waits() const;

  Block& block;
  uint32_t first_thread;  // of the warp or warpgroup
  bool group;             // a warpgroup
  uint32_t mask;          // lanes of a warp; all ones for a warpgroup
  Uniform uniform;
  void** operands;
  uint32_t arrived[4] = {};    // lanes of each warp that are here
  Rendezvous* next = nullptr;  // others of the same warp
};

struct NamedBarrier {
  uint32_t expected = 0;  // threads; 0 while nobody has arrived
  uint32_t arrived = 0;
  bool whole_block = false;  // by barrier_sync(id, 0)
  uint64_t phase = 0;
  uint32_t population = 0;         // of the predicates of this phase
  uint32_t lanes[kMaxWarps] = {};  // of each warp that have arrived in this phase
  Site sites[kMaxWarps];           // where they did
  SyncPoint point;
  std::vector<Thread*> waiters;
  Arrivals arrivals;
};

struct ClusterBarrier {
  uint32_t arrived = 0, exited = 0, threads = 0;
  uint64_t phase = 0;
  SyncPoint points[2];  // by parity of the phase
  WaitQueue queue;
  Arrivals arrivals;
};

struct RegisterPool {
  uint64_t total = 0, free = 0;  // 32-bit registers
  WaitQueue queue;
};

struct ExecutionState {
  NamedBarrier barriers[kNamedBarriers];
  uint32_t whole_block = 0;          // barriers at which some wait for all threads of the block
  Rendezvous* open[kMaxWarps] = {};  // of each warp
  Rendezvous* group_open[kMaxWarps / 4] = {};  // of each warpgroup
  RegisterPool registers;
  ClusterBarrier cluster;  // that of the block with rank 0 counts
  bool waited_for_dependency = false;
};

// A thread has returned from the kernel: whoever still waits for it is told.
void thread_exited(Thread&);
// Parts of it.
void collective_thread_exited(Thread&);
void barrier_thread_exited(Thread&);
void barrier_block_exited(Block&);
// Puts the state of a block back to a kernel's start.
void reset_execution(Block&);

}  // namespace halftone::sim

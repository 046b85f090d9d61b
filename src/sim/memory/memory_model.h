// What execution tells the memory model: one object per running cluster, implemented by
// sim/memory. Execution calls; nobody else does. Objects are reused from cluster to cluster.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "sim/execution/thread.h"

namespace halftone::sim {

enum class Scope : uint8_t { block, cluster };

// Attached to whatever threads synchronise on. The memory model puts its clock into `clock` and may
// keep it from one use to the next; it is null at first and after a cluster's end.
struct SyncPoint {
  void* clock = nullptr;
};

class MemoryModel {
 public:
  // With severity off the model still holds shared memory; it checks nothing.
  static std::unique_ptr<MemoryModel> create();
  virtual ~MemoryModel() = default;

  // Blocks, warps and threads are set up and none has run. shape.shared_bytes is each block's.
  virtual void begin(Cluster&) = 0;
  // A thread has returned; a block's last thread has returned (asynchronous work may be in flight);
  // everything has ended and no work is left. Exit checks report from here.
  virtual void thread_exit(Thread&) {}
  virtual void block_exit(Block&) {}
  virtual void end(Cluster&) = 0;
  // The cluster was stopped; release everything, check nothing.
  virtual void abandon(Cluster&) = 0;

  // What `thread` did so far becomes part of the point (bar.sync, bar.arrive, cluster arrive).
  virtual void release(Thread&, SyncPoint&, Scope) {}
  // A relaxed arrival: only what a fence.acq_rel came after becomes part of it.
  virtual void release_fenced(Thread&, SyncPoint&) {}
  // The thread acquires what has been released into the point, which keeps it.
  virtual void acquire(Thread&, SyncPoint&, Scope) {}
  // The point forgets what was released into it.
  virtual void reset(SyncPoint&) {}
  // All that at once: the barrier completes, each of `waiters` acquires everything released into
  // the point since it last completed; the point is then empty again.
  virtual void complete(SyncPoint& point, std::span<Thread* const> waiters, Scope scope) {
    for (Thread* thread : waiters) acquire(*thread, point, scope);
    reset(point);
  }
  // The lanes order their accesses among each other (bar.warp.sync, and barriers' lanes).
  virtual void warp_sync(Warp&, uint32_t /*mask*/) {}
};

}  // namespace halftone::sim

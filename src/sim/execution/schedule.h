// Waiting, waking, giving way, and work that happens by itself later.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "sim/execution/thread.h"

namespace halftone::sim {

// What a thread waits for; lives on its stack while it does. `text` is asked for only when a
// deadlock is reported: what is waited for, its state, who has arrived last and who is missing.
class Waiting {
 public:
  Waiting(const char* instruction, const Site& site) : instruction_(instruction), site_(site) {}
  virtual ~Waiting() = default;
  virtual std::string text() const = 0;
  // Equal keys are one thing waited for: reports group threads by it.
  virtual const void* key() const { return this; }
  const char* instruction() const { return instruction_; }
  const Site& site() const { return site_; }

 private:
  const char* instruction_;
  Site site_;
};

// Threads asleep until something happens. Belongs to a barrier, an mbarrier, a commit group...
class WaitQueue {
 public:
  // Puts the running thread to sleep. It may wake without cause: test the condition again.
  void sleep(const Waiting&);
  // From a thread or from asynchronous work of the same cluster.
  void wake_all();
  bool empty() const { return first_ == nullptr; }

 private:
  Thread *first_ = nullptr, *last_ = nullptr;
};

template <class Ready>
void wait_until(WaitQueue& queue, const Waiting& waiting, Ready ready) {
  while (!ready()) queue.sleep(waiting);
}

// A failed test in a polling loop, nanosleep, a read of a flag: everybody else runs first. When a
// whole cluster spins, other clusters run; when the whole grid does and nothing changes, it hangs.
void spin(const Site&);
// A place where another warp may run in the random and adversarial schedules: call it on arriving,
// issuing, signalling. Free under fifo.
void schedule_point();

// Work of an engine (cp.async, bulk copy, wgmma, tcgen05, commit): queued when issued, run once, at
// a moment the schedule picks, on the cluster's OS thread, outside any thread of the kernel.
// Under fifo it runs in order of issue when no thread of the cluster can run.
class AsyncWork {
 public:
  virtual ~AsyncWork() = default;
  // May run now: what must come before it in its engine has run.
  virtual bool ready() const { return true; }
  // Must not wait; may wake queues, add work and report.
  virtual void run() = 0;
  // For deadlock reports: "cp.async.bulk of 4096 bytes into 0x400, signals full[1], tile.cuh:30".
  virtual std::string text() const = 0;
};
void add_async(Cluster&, std::unique_ptr<AsyncWork>);

// A number that depends on the seed and the cluster alone; below `bound`, which is not 0. For
// whatever the specification leaves open (elect's leader, spurious failures).
uint32_t choose(Cluster&, uint32_t bound);

}  // namespace halftone::sim

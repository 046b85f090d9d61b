// Who of a cluster runs next. Execution's own header: models use "sim/execution/schedule.h".
#pragma once
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <vector>

#include "sim/execution/fiber.h"
#include "sim/execution/random.h"
#include "sim/execution/schedule.h"
#include "sim/execution/thread.h"
#include "sim/report.h"

namespace halftone::sim {

// Thrown through the threads of a launch that has been stopped.
struct Unwind {};

class Scheduler {
 public:
  // finished: every thread has returned and no work is left. parked: only polling loops are left,
  // or have had their share. stopped: a fatal violation, here or elsewhere; everything is unwound.
  enum class Outcome : uint8_t { finished, parked, stopped };

  explicit Scheduler(FiberPool& pool) : pool_(pool) {}
  void begin(Cluster&);
  Outcome run();

  // --- for threads ---------------------------------------------------------------------------
  static Thread* running();
  void sleep(const Waiting&);  // until make_ready
  void make_ready(Thread&);
  void make_ready(Warp&, uint32_t lanes);  // lanes asleep by `sleep`
  void spin(const Site&);
  void schedule_point();
  uint32_t choose(uint32_t bound) { return choices_.below(bound); }

  // --- asynchronous work ---------------------------------------------------------------------
  void add(std::unique_ptr<AsyncWork> work);
  struct Queued {
    std::unique_ptr<AsyncWork> work;
    uint64_t due;  // random: not before this step unless no thread can run
  };
  const std::deque<Queued>& work() const { return work_; }

  uint64_t steps() const { return steps_; }
  // Something other than polling has happened this many times.
  uint64_t activity() const { return activity_; }
  uint32_t live() const { return live_; }

 private:
  static void fiber_main(void* scheduler);
  void enter(Thread&);
  void switch_away();
  void dispatch(Thread&);
  Thread* pick();
  Thread* pick_random();
  void hold_another();
  bool holds(const Warp& warp) const { return held_ != nullptr && held_->warp == &warp; }
  void push(Warp&);
  Warp* pop();
  bool run_work(bool eager);
  void finish(Thread&);
  void unwind();
  void release_spinners();
  [[noreturn]] void over_budget();

  Cluster* cluster_ = nullptr;
  Launch* launch_ = nullptr;
  FiberPool& pool_;
  Fiber root_;
  Thread* current_ = nullptr;
  SimulatorOptions::Schedule schedule_ = SimulatorOptions::Schedule::fifo;

  // Warps with a lane that can run: a ring under fifo, else any order.
  std::vector<Warp*> queue_;
  size_t head_ = 0, count_ = 0;
  Warp* current_warp_ = nullptr;  // fifo: stays until none of its lanes can run
  std::vector<Thread*> spinners_;
  std::deque<Queued> work_;
  bool work_early_ = false;  // adversarial: as early as possible, else as late
  Thread* held_ = nullptr;   // adversarial: runs when nobody else can

  Random random_, choices_;
  uint64_t steps_ = 0, slice_start_ = 0, activity_ = 0, round_activity_ = 0;
  uint32_t live_ = 0;
  bool unwinding_ = false, rounds_ = false, spun_ = false;
};

// deadlock.cpp: the report of a cluster in which nothing can happen any more.
[[noreturn]] void report_deadlock(Cluster&, const Scheduler&);
// Every cluster polls and nothing changes, or one took more steps than allowed.
Violation hang_violation(const Cluster&, const Scheduler&, std::string cause);

}  // namespace halftone::sim

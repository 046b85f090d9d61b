#include "sim/execution/scheduler.h"

#include <bit>
#include <utility>

#include "base/message.h"
#include "sim/execution/execution.h"
#include "sim/memory/memory_model.h"
#include "sim/report.h"
#include "sim/sink.h"

namespace halftone::sim {

namespace {

thread_local Thread* running_thread = nullptr;
thread_local Cluster* cluster_here = nullptr;

struct Here {
  explicit Here(Cluster* cluster) { cluster_here = cluster; }
  ~Here() { cluster_here = nullptr; }
};

// Steps a cluster may take before clusters that are parked get a turn, once it polls.
constexpr uint64_t kSlice = 1u << 14;

}  // namespace

Thread* Scheduler::running() { return running_thread; }

Thread& self() {
  if (running_thread == nullptr) {
    fail(ErrorCode::invalid_argument, "a device function was called outside a simulated kernel");
  }
  return *running_thread;
}
Cluster* running_cluster() { return cluster_here; }
bool in_kernel() { return running_thread != nullptr; }
void set_role(const char* name) { self().role = name; }

void Scheduler::begin(Cluster& cluster) {
  cluster_ = &cluster;
  launch_ = cluster.launch;
  schedule_ = launch_->options.schedule;
  random_ = Random(launch_->options.seed, cluster.index * 2);
  choices_ = Random(launch_->options.seed, cluster.index * 2 + 1);
  work_early_ = (random_.next() & 1) != 0;
  held_ = nullptr;
  work_.clear();
  spinners_.clear();
  steps_ = slice_start_ = activity_ = round_activity_ = 0;
  unwinding_ = rounds_ = spun_ = false;
  current_ = nullptr;
  current_warp_ = nullptr;
  live_ = 0;
  uint32_t warps = 0;
  for (uint32_t b = 0; b < cluster.block_count; ++b) {
    live_ += cluster.blocks[b].thread_count;
    warps += cluster.blocks[b].warp_count;
  }
  head_ = count_ = 0;
  const size_t ring = std::bit_ceil(size_t{warps} + 1);
  if (queue_.size() < ring) queue_.resize(ring);
  for (uint32_t b = 0; b < cluster.block_count; ++b) {
    for (uint32_t w = 0; w < cluster.blocks[b].warp_count; ++w) push(cluster.blocks[b].warps[w]);
  }
  if (schedule_ == SimulatorOptions::Schedule::adversarial) hold_another();
}

void Scheduler::push(Warp& warp) {
  if (warp.queued) return;
  warp.queued = true;
  queue_[(head_ + count_++) & (queue_.size() - 1)] = &warp;
}

Warp* Scheduler::pop() {
  Warp* warp = queue_[head_];
  head_ = (head_ + 1) & (queue_.size() - 1);
  --count_;
  warp->queued = false;
  return warp;
}

// Random takes any warp. Adversarial takes the one that became ready last, most of the time: those
// who wait long are the ones whose data gets overwritten.
Thread* Scheduler::pick_random() {
  while (count_ > 0) {
    const bool last = schedule_ == SimulatorOptions::Schedule::adversarial && random_.below(8) != 0;
    const size_t mask = queue_.size() - 1;
    const size_t at = (head_ + (last ? count_ - 1 : random_.below(uint32_t(count_)))) & mask;
    Warp& warp = *queue_[at];
    const uint32_t ready = holds(warp) ? warp.ready & ~(1u << held_->lane) : warp.ready;
    if (ready != 0) {
      // Any ready lane; those after a gap come up more often, which is no loss.
      const uint32_t from = random_.next() & 31;
      const auto skip = static_cast<uint32_t>(std::countr_zero(std::rotr(ready, int(from))));
      return &warp.threads[(from + skip) & 31];
    }
    queue_[at] = queue_[(head_ + --count_) & mask];
    warp.queued = false;
  }
  return nullptr;
}

// One thread of the cluster is left behind for a while: a lane that others do not need may come
// several phases of a barrier late.
void Scheduler::hold_another() {
  if (held_ != nullptr && held_->warp->ready != 0) push(*held_->warp);
  const Block& block = cluster_->blocks[random_.below(cluster_->block_count)];
  held_ = &block.threads[random_.below(block.thread_count)];
}

// The next thread to run, taken out of its warp's ready lanes.
Thread* Scheduler::pick() {
  Thread* thread = nullptr;
  if (schedule_ == SimulatorOptions::Schedule::fifo) {
    while (current_warp_ == nullptr || current_warp_->ready == 0) {
      if (count_ == 0) return current_warp_ = nullptr, nullptr;
      current_warp_ = pop();
    }
    thread = &current_warp_->threads[std::countr_zero(current_warp_->ready)];
  } else {
    thread = pick_random();
    if (thread == nullptr) return nullptr;
  }
  thread->warp->ready &= ~(1u << thread->lane);
  return thread;
}

void Scheduler::make_ready(Thread& thread) {
  Warp& warp = *thread.warp;
  thread.state = Thread::State::ready;
  thread.waiting = nullptr;
  warp.ready |= 1u << thread.lane;
  ++activity_;
  if (&warp != current_warp_) push(warp);
}

void Scheduler::make_ready(Warp& warp, uint32_t lanes) {
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    Thread& thread = warp.threads[std::countr_zero(left)];
    thread.state = Thread::State::ready;
    thread.waiting = nullptr;
  }
  warp.ready |= lanes;
  ++activity_;
  if (lanes != 0 && &warp != current_warp_) push(warp);
}

void Scheduler::enter(Thread& thread) {
  if (thread.fiber == nullptr) {  // before anything changes: no stack may be left
    thread.fiber = pool_.take();
    prepare(*thread.fiber, &Scheduler::fiber_main, this);
  }
  ++steps_;
  thread.state = Thread::State::running;
  current_ = running_thread = &thread;
}

// Gives the processor to whoever is next; returns when this thread is picked again.
void Scheduler::switch_away() {
  if (unwinding_) {
    if (std::uncaught_exceptions() > 0) return;  // from a destructor: nothing left to wait for
    throw Unwind{};
  }
  Thread& me = *current_;
  Fiber& mine = *me.fiber;
  Thread* next = nullptr;
  // With work queued, a schedule other than fifo decides at the root whether it runs first.
  const bool direct = schedule_ == SimulatorOptions::Schedule::fifo || work_.empty();
  if (direct && !launch_->stopped.load(std::memory_order_relaxed) &&
      steps_ < launch_->options.step_limit) {
    next = pick();
  }
  if (next == nullptr) {
    running_thread = nullptr;
    switch_fiber(mine, root_);
  } else {
    enter(*next);
    if (next != &me) switch_fiber(mine, *next->fiber);
  }
  if (unwinding_) throw Unwind{};
}

void Scheduler::dispatch(Thread& thread) {
  enter(thread);
  switch_fiber(root_, *thread.fiber);
  running_thread = nullptr;
}

void Scheduler::sleep(const Waiting& waiting) {
  Thread& me = *current_;
  me.state = Thread::State::waiting;
  me.waiting = &waiting;
  me.spinning = false;
  me.polled = 0;
  ++activity_;
  switch_away();
}

void Scheduler::spin(const Site& site) {
  Thread& me = *current_;
  // A polling loop comes back to the places it has polled at; a new one is something done.
  const uint64_t bit = uint64_t{1} << (mix(uint64_t{site.line()} << 16 | site.column()) & 63);
  if ((me.polled & bit) == 0) ++activity_;
  me.polled |= bit;
  me.last_site = site;
  me.spinning = spun_ = true;
  me.state = Thread::State::ready;
  spinners_.push_back(&me);
  switch_away();
}

void Scheduler::schedule_point() {
  if (schedule_ == SimulatorOptions::Schedule::fifo || unwinding_) return;
  if (random_.below(4) != 0) return;
  make_ready(*current_);
  switch_away();
}

void Scheduler::add(std::unique_ptr<AsyncWork> work) {
  uint64_t due = 0;
  // At once, or after a time of any magnitude.
  if (schedule_ == SimulatorOptions::Schedule::random && random_.below(4) != 0) {
    due = steps_ + random_.below(1u << random_.below(14));
  }
  work_.push_back({std::move(work), due});
  ++activity_;
}

// Runs one piece of work if the schedule wants it now: `eager` while threads could run instead.
bool Scheduler::run_work(bool eager) {
  using Schedule = SimulatorOptions::Schedule;
  if (work_.empty()) return false;
  if (eager && schedule_ == Schedule::fifo) return false;
  if (eager && schedule_ == Schedule::adversarial) {
    if (random_.below(64) == 0) work_early_ = !work_early_;
    if (!work_early_) return false;
  }
  const auto count = static_cast<uint32_t>(work_.size());
  const uint32_t first = schedule_ == Schedule::random ? random_.below(count) : 0;
  for (uint32_t i = 0; i < count; ++i) {
    // Adversarial: the youngest first; else in order from `first`.
    const uint32_t at = schedule_ == Schedule::adversarial ? count - 1 - i : (first + i) % count;
    if ((eager && work_[at].due > steps_) || !work_[at].work->ready()) continue;
    const std::unique_ptr<AsyncWork> work = std::move(work_[at].work);
    work_.erase(work_.begin() + at);
    ++activity_;
    ++steps_;
    work->run();
    return true;
  }
  return false;
}

void Scheduler::release_spinners() {
  for (Thread* thread : spinners_) {
    thread->warp->ready |= 1u << thread->lane;
    if (thread->warp != current_warp_) push(*thread->warp);
  }
  spinners_.clear();
}

Scheduler::Outcome Scheduler::run() {
  const Here here(cluster_);
  adopt_thread(root_);
  slice_start_ = steps_;
  rounds_ = false;
  spun_ = !spinners_.empty();
  try {
    for (;;) {
      if (launch_->stopped.load(std::memory_order_relaxed)) break;
      if (steps_ >= launch_->options.step_limit) over_budget();
      if (spun_ && steps_ - slice_start_ > kSlice) return Outcome::parked;
      if (count_ > 0 && run_work(true)) continue;
      if (Thread* thread = pick()) {
        dispatch(*thread);
        continue;
      }
      if (run_work(false)) continue;
      if (!spinners_.empty() && !(rounds_ && activity_ == round_activity_)) {
        rounds_ = true;
        round_activity_ = activity_;
        release_spinners();
        continue;
      }
      if (held_ != nullptr && (held_->warp->ready >> held_->lane & 1) != 0) {
        Thread& late = *held_;
        late.warp->ready &= ~(1u << late.lane);
        if (random_.below(16) == 0) hold_another();
        dispatch(late);
        continue;
      }
      if (!spinners_.empty()) return Outcome::parked;
      if (live_ != 0 || !work_.empty()) report_deadlock(*cluster_, *this);
      cluster_->memory->end(*cluster_);
      if (launch_->stopped.load(std::memory_order_relaxed)) break;
      return Outcome::finished;
    }
  } catch (const Unwind&) {
  } catch (const std::exception& error) {  // of a model that runs as asynchronous work
    Violation violation;
    violation.level = Level::fatal;
    violation.rule = "kernel.exception";
    violation.text = error.what();
    launch_->sink.add(std::move(violation));
    launch_->stopped.store(true);
  }
  unwind();
  return Outcome::stopped;
}

void Scheduler::over_budget() {
  fatal(*cluster_, hang_violation(*cluster_, *this,
                                  concat("the cluster took ", steps_,
                                         " scheduling steps, the limit, and has not ended")));
}

// Lets every thread that has begun leave through its destructors; the others never begin.
void Scheduler::unwind() {
  unwinding_ = true;
  for (uint32_t b = 0; b < cluster_->block_count; ++b) {
    Block& block = cluster_->blocks[b];
    for (uint32_t t = 0; t < block.thread_count; ++t) {
      Thread& thread = block.threads[t];
      while (thread.fiber != nullptr) {
        current_ = running_thread = &thread;
        switch_fiber(root_, *thread.fiber);
        running_thread = nullptr;
      }
      thread.state = Thread::State::exited;
    }
  }
  work_.clear();
  live_ = 0;
  cluster_->memory->abandon(*cluster_);
}

void Scheduler::finish(Thread& thread) {
  thread.state = Thread::State::exited;
  thread.fiber = nullptr;
  ++activity_;
  --live_;
  if (unwinding_ || launch_->stopped.load(std::memory_order_relaxed)) return;
  try {
    thread_exited(thread);
  } catch (const Unwind&) {
  }
}

// The life of a stack: threads that have not begun may follow each other on it without a switch.
void Scheduler::fiber_main(void* argument) {
  Scheduler& me = *static_cast<Scheduler*>(argument);
  Fiber& fiber = *me.current_->fiber;
  for (;;) {
    Thread& thread = *me.current_;
    try {
      if (!me.unwinding_) me.launch_->kernel.sim_body(me.launch_->params);
    } catch (const Unwind&) {
    } catch (const std::exception& error) {
      try {
        fatal(thread, "kernel.exception", thread.last_site, "throws", error.what());
      } catch (const Unwind&) {
      }
    }
    me.finish(thread);
    Thread* next = nullptr;
    const bool direct = me.schedule_ == SimulatorOptions::Schedule::fifo || me.work_.empty();
    if (direct && !me.unwinding_ && !me.launch_->stopped.load(std::memory_order_relaxed) &&
        me.steps_ < me.launch_->options.step_limit) {
      next = me.pick();
    }
    if (next != nullptr && next->fiber == nullptr) {
      next->fiber = &fiber;
      me.enter(*next);
      continue;
    }
    me.pool_.give(&fiber);
    if (next != nullptr) {
      me.enter(*next);
      leave_fiber(fiber, *next->fiber);
    }
    running_thread = nullptr;
    leave_fiber(fiber, me.root_);
  }
}

// --- sim/execution/schedule.h
// ------------------------------------------------------------------------------

void WaitQueue::sleep(const Waiting& waiting) {
  Thread& me = self();
  me.next_waiting = nullptr;
  if (last_ == nullptr) {
    first_ = &me;
  } else {
    last_->next_waiting = &me;
  }
  last_ = &me;
  cluster_of(me).scheduler->sleep(waiting);
}

void WaitQueue::wake_all() {
  Thread* thread = first_;
  first_ = last_ = nullptr;
  while (thread != nullptr) {
    Thread* next = thread->next_waiting;
    cluster_of(*thread).scheduler->make_ready(*thread);
    thread = next;
  }
}

void spin(const Site& site) { cluster_of(self()).scheduler->spin(site); }
void schedule_point() { cluster_of(self()).scheduler->schedule_point(); }
void add_async(Cluster& cluster, std::unique_ptr<AsyncWork> work) {
  cluster.scheduler->add(std::move(work));
}
uint32_t choose(Cluster& cluster, uint32_t bound) { return cluster.scheduler->choose(bound); }

}  // namespace halftone::sim

// The barrier of a cluster, the register pool, programmatic launch, and the end of a thread.
#include <bit>

#include "base/message.h"
#include "sim/counters.h"
#include "sim/execution/execution.h"
#include "sim/execution/scheduler.h"
#include "sim/report.h"

namespace halftone::sim {

namespace {

ClusterBarrier& barrier_of(const Agent& agent) {
  return cluster_of(agent).blocks[0].state->cluster;
}

class ClusterWait final : public Waiting {
 public:
  ClusterWait(const Site& site, const ClusterBarrier& barrier)
      : Waiting("barrier.cluster.wait", site), barrier_(barrier) {}
  const void* key() const override { return &barrier_; }
  std::string text() const override {
    return concat("cluster barrier, phase ", barrier_.phase, ": ", barrier_.arrived, " of ",
                  barrier_.threads - barrier_.exited, " threads have arrived; ",
                  barrier_.arrivals.text(&barrier_));
  }

 private:
  const ClusterBarrier& barrier_;
};

void complete_if_all(ClusterBarrier& barrier, MemoryModel& memory) {
  if (barrier.arrived == 0 || barrier.arrived + barrier.exited < barrier.threads) return;
  barrier.arrived = 0;
  ++barrier.phase;
  // Everyone has waited for the phase before, so its point is free for the phase that begins.
  memory.reset(barrier.points[barrier.phase & 1]);
  barrier.arrivals.completed();
  barrier.queue.wake_all();
}

class RegisterWait final : public Waiting {
 public:
  RegisterWait(const Site& site, const Warp& warp, uint32_t count, uint64_t needs)
      : Waiting("setmaxnreg.inc", site), warp_(warp), count_(count), needs_(needs) {}
  const void* key() const override { return &warp_.block->state->registers; }
  std::string text() const override {
    const Block& block = *warp_.block;
    std::string held;
    for (uint32_t w = 0; w < block.warp_count;) {
      uint32_t end = w + 1;
      while (end < block.warp_count && block.warps[end].registers == block.warps[w].registers) {
        ++end;
      }
      held += concat(held.empty() ? "" : ", ", "warps ", w, "-", end - 1, " hold ",
                     block.warps[w].registers);
      w = end;
    }
    const RegisterPool& pool = block.state->registers;
    return concat("setmaxnreg deadlock: warp ", warp_.index, " wants ", count_,
                  " registers a thread and holds ", warp_.registers, ": 32 x (", count_, " - ",
                  warp_.registers, ") = ", needs_, " needed, ", pool.free, " free of the block's ",
                  pool.total, " (registers a thread: ", held, ")");
  }

 private:
  const Warp& warp_;
  uint32_t count_;
  uint64_t needs_;
};

}  // namespace

void cluster_arrive(bool release, const Site& site) {
  Thread& me = self();
  ClusterBarrier& barrier = barrier_of(me);
  MemoryModel& memory = *cluster_of(me).memory;
  me.last_site = site;
  if (me.cluster_arrivals != me.cluster_waits) {
    fatal(me, "cluster.twice", site, "barrier.cluster.arrive",
          concat("the thread arrives at the cluster barrier ",
                 me.cluster_arrivals - me.cluster_waits + 1, " times without waiting"),
          "wait once after every arrive");
  }
  ++me.cluster_arrivals;
  ++barrier.arrived;
  if (me.lane == 0) {
    barrier.arrivals.arrived(&me, site, static_cast<uint32_t>(std::popcount(me.warp->present)));
    count_instruction("barrier.cluster.arrive");
  }
  if (release) {
    memory.release(me, barrier.points[barrier.phase & 1], Scope::cluster);
  } else {
    memory.release_fenced(me, barrier.points[barrier.phase & 1]);
  }
  complete_if_all(barrier, memory);
  schedule_point();
}

void cluster_wait(const Site& site) {
  Thread& me = self();
  ClusterBarrier& barrier = barrier_of(me);
  me.last_site = site;
  if (me.cluster_arrivals == me.cluster_waits) {
    fatal(me, "cluster.wait_without_arrive", site, "barrier.cluster.wait",
          "the thread waits at the cluster barrier without having arrived",
          "arrive before waiting");
  }
  const uint64_t phase = me.cluster_waits;
  if (barrier.phase == phase) {
    count_barrier_wait();
    ClusterWait waiting(site, barrier);
    wait_until(barrier.queue, waiting, [&] { return barrier.phase != phase; });
  }
  ++me.cluster_waits;
  cluster_of(me).memory->acquire(me, barrier.points[phase & 1], Scope::cluster);
}

void setmaxnreg(uint32_t count, bool increase, const Site& site) {
  Thread& me = self();
  const char* instruction = increase ? "setmaxnreg.inc" : "setmaxnreg.dec";
  if (count < 24 || count > 256 || count % 8 != 0) {
    fatal(me, "setmaxnreg.value", site, concat(instruction, " ", count),
          concat("the register count ", count, " must be a multiple of 8 from 24 to 256"));
  }
  struct {
  } none;
  Warp& warp = *me.warp;
  const auto model = [&, increase, count](const auto&) {
    RegisterPool& pool = me.block->state->registers;
    if (increase ? count < warp.registers : count > warp.registers) {
      fatal(me, "setmaxnreg.direction", site, concat(instruction, " ", count),
            concat(instruction, " to ", count, " registers, but warp ", warp.index, " holds ",
                   warp.registers, " a thread"),
            increase ? "use dec to give registers back" : "use inc to take registers");
    }
    if (increase) {
      const uint64_t needs = uint64_t{32} * (count - warp.registers);
      RegisterWait waiting(site, warp, count, needs);
      wait_until(pool.queue, waiting, [&] { return pool.free >= needs; });
      pool.free -= needs;
    } else {
      pool.free += uint64_t{32} * (warp.registers - count);
      pool.queue.wake_all();
    }
    warp.registers = count;
  };
  warp_collective(instruction, kFullMask, none, model, site, {{{"register count", count}}});
  schedule_point();
}

void grid_dependency_wait(const Site& site) {
  self().last_site = site;
  self().block->state->waited_for_dependency = true;
  count_instruction("griddepcontrol.wait");
}

void grid_launch_dependents(const Site& site) {
  self().last_site = site;
  count_instruction("griddepcontrol.launch_dependents");
}

void thread_exited(Thread& thread) {
  Warp& warp = *thread.warp;
  Block& block = *thread.block;
  Cluster& cluster = *block.cluster;
  warp.exited |= 1u << thread.lane;
  ++block.exited;
  cluster.memory->thread_exit(thread);
  collective_thread_exited(thread);
  barrier_thread_exited(thread);
  if (thread.cluster_arrivals != thread.cluster_waits) {
    report(thread, Level::strict, "cluster.arrive_without_wait", thread.last_site, "returns",
           "the thread arrived at the cluster barrier and returns without waiting",
           "wait once after every arrive");
  }
  // Its registers stay with the block: nothing says that a warp's return frees them for others.
  ClusterBarrier& barrier = barrier_of(thread);
  ++barrier.exited;
  complete_if_all(barrier, *cluster.memory);
  if (block.exited == block.thread_count) {
    barrier_block_exited(block);
    if (cluster.launch->shape.programmatic && !block.state->waited_for_dependency) {
      report(thread, Level::strict, "launch.no_dependency_wait", thread.last_site, "returns",
             "the launch may start before the kernel ahead of it has ended, and no thread of the "
             "block executed griddepcontrol.wait",
             "wait before reading what the kernel ahead writes");
    }
    cluster.memory->block_exit(block);
  }
}

void reset_execution(Block& block) {
  ExecutionState& state = *block.state;
  for (NamedBarrier& barrier : state.barriers) {
    if (barrier.phase == 0 && barrier.arrived == 0) continue;  // never used
    std::vector<Thread*> waiters = std::move(barrier.waiters);
    waiters.clear();
    barrier = {};
    barrier.waiters = std::move(waiters);
  }
  for (auto& open : state.open) open = nullptr;
  for (auto& open : state.group_open) open = nullptr;
  state.cluster = {};
  for (uint32_t b = 0; b < block.cluster->block_count; ++b) {
    state.cluster.threads += block.cluster->blocks[b].thread_count;
  }
  const uint32_t registers = block.cluster->launch->registers_per_thread;
  state.registers = {};
  state.registers.total = uint64_t{registers} * block.warp_count * 32;
  for (uint32_t w = 0; w < block.warp_count; ++w) block.warps[w].registers = registers;
  state.whole_block = 0;
  state.waited_for_dependency = false;
}

}  // namespace halftone::sim

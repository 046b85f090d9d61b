#include "sim/execution/barrier.h"

#include <algorithm>
#include <bit>

#include "base/message.h"
#include "sim/counters.h"
#include "sim/execution/execution.h"
#include "sim/execution/scheduler.h"
#include "sim/report.h"

namespace halftone::sim {

namespace {

// A thread asleep at a named barrier. The result comes by the barrier's completion.
class BarrierWait final : public Waiting {
 public:
  BarrierWait(const char* instruction, const Site& site, const Block& block, uint32_t id)
      : Waiting(instruction, site), block_(block), barrier_(block.state->barriers[id]), id_(id) {}
  const void* key() const override { return &barrier_; }
  std::string text() const override {
    std::string text =
        concat("barrier ", id_, ", phase ", barrier_.phase, ": ", barrier_.arrived, " of ",
               barrier_.expected, " threads have arrived; ", barrier_.arrivals.text(&barrier_));
    for (uint32_t w = 0; w < block_.warp_count; ++w) {
      const uint32_t lanes = barrier_.lanes[w];
      if (lanes == 0 || lanes == block_.warps[w].present) continue;
      text += concat("; of warp ", w, " only ", std::popcount(lanes), " lanes have arrived");
    }
    return text;
  }
  uint32_t population = 0;

 private:
  const Block& block_;
  const NamedBarrier& barrier_;
  uint32_t id_;
};

std::string call(const char* instruction, uint32_t id, uint32_t threads) {
  return threads == 0 ? concat(instruction, " ", id) : concat(instruction, " ", id, ", ", threads);
}

// What may be asked of a barrier at all.
void check_call(const Thread& me, const char* instruction, uint32_t id, uint32_t threads,
                const Site& site) {
  const Block& block = *me.block;
  if (id >= kNamedBarriers) {
    fatal(me, "barrier.id", site, call(instruction, id, threads),
          concat("barrier ", id, " does not exist; a block has barriers 0 to 15"));
  }
  if (threads % 32 != 0) {
    fatal(me, "barrier.count", site, call(instruction, id, threads),
          concat("the thread count ", threads, " is not a multiple of 32"));
  }
  if (threads > (block.thread_count + 31) / 32 * 32) {
    fatal(
        me, "barrier.count", site, call(instruction, id, threads),
        concat("the barrier waits for ", threads, " threads, the block has ", block.thread_count));
  }
  if (threads == 0 && block.exited != 0) {
    fatal(me, "barrier.exited", site, call(instruction, id, threads),
          concat("the barrier waits for all threads of the block, but ", block.exited,
                 " have returned from the kernel"),
          "pass the number of threads that take part");
  }
}

SimulatorAccess other_side(const NamedBarrier& barrier, const Block& block, uint32_t id) {
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    if (barrier.lanes[w] == 0) continue;
    const Thread& thread = block.warps[w].threads[std::countr_zero(barrier.lanes[w])];
    return access(thread, barrier.sites[w],
                  concat("arrived at barrier ", id, " for ", barrier.expected, " threads"));
  }
  return {};
}

[[noreturn]] void clash(const Thread& me, const char* rule, const char* instruction, uint32_t id,
                        uint32_t threads, const Site& site, const NamedBarrier& barrier,
                        std::string text, std::string fix) {
  Violation violation;
  violation.level = Level::fatal;
  violation.rule = rule;
  violation.text = std::move(text);
  violation.fix = std::move(fix);
  violation.accesses = {access(me, site, call(instruction, id, threads)),
                        other_side(barrier, *me.block, id)};
  violation.accesses[0].phase = static_cast<int64_t>(barrier.phase);
  fatal(cluster_of(me), std::move(violation));
}

// Every warp that took part did so with all its lanes.
void check_whole_warps(const Thread& me, const char* instruction, uint32_t id,
                       const NamedBarrier& barrier, const Site& site) {
  const Block& block = *me.block;
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    if (barrier.lanes[w] == 0 || barrier.lanes[w] == block.warps[w].present) continue;
    clash(me, "barrier.diverged", instruction, id, barrier.expected, site, barrier,
          concat("barrier ", id, " completes with ", std::popcount(barrier.lanes[w]), " of the ",
                 std::popcount(block.warps[w].present), " lanes of warp ", w,
                 ": the warp has diverged"),
          "let all lanes of a warp execute the barrier");
  }
}

void complete(uint32_t id, Block& block, Thread* last) {
  NamedBarrier& barrier = block.state->barriers[id];
  block.state->whole_block &= ~(1u << id);
  Cluster& cluster = *block.cluster;
  if (last != nullptr) barrier.waiters.push_back(last);
  cluster.memory->complete(barrier.point, barrier.waiters, Scope::block);
  if (last != nullptr) barrier.waiters.pop_back();
  for (Thread* thread : barrier.waiters) {
    // Only BarrierWait sleeps here.
    const_cast<BarrierWait*>(static_cast<const BarrierWait*>(thread->waiting))->population =
        barrier.population;
    cluster.scheduler->make_ready(*thread);
  }
  barrier.waiters.clear();
  std::fill_n(barrier.lanes, block.warp_count, 0u);
  barrier.expected = barrier.arrived = barrier.population = 0;
  barrier.whole_block = false;
  ++barrier.phase;
  barrier.arrivals.completed();
}

// Counts this thread; true when the barrier is complete by it.
bool arrive(Thread& me, NamedBarrier& barrier, const char* instruction, uint32_t id,
            uint32_t threads, const Site& site) {
  const Block& block = *me.block;
  Warp& warp = *me.warp;
  const uint32_t whole = (block.thread_count + 31) / 32 * 32;
  const uint32_t expected = threads == 0 ? whole : threads;
  if (barrier.expected == 0) {
    barrier.expected = expected;
    barrier.whole_block = threads == 0;
    if (threads == 0) me.block->state->whole_block |= 1u << id;
  } else if (barrier.expected != expected) {
    clash(me, "barrier.count_differs", instruction, id, threads, site, barrier,
          concat("barrier ", id, " is used with ", expected, " threads while ", barrier.arrived,
                 " of ", barrier.expected, " have arrived in the same phase"),
          "give every user of a barrier the same count, or use another barrier");
  }
  const uint32_t bit = 1u << me.lane;
  uint32_t& lanes = barrier.lanes[warp.index];
  if ((lanes & bit) != 0) {
    clash(me, "barrier.twice", instruction, id, threads, site, barrier,
          concat("warp ", warp.index, " arrives at barrier ", id,
                 " again before the barrier is complete, so it would complete without others"),
          "arrive once in a phase");
  }
  if (lanes != 0 && !same_site(barrier.sites[warp.index], site)) {
    clash(me, "barrier.diverged", instruction, id, threads, site, barrier,
          concat("lanes of warp ", warp.index, " arrive at barrier ", id, " from ", to_string(site),
                 " and from ", to_string(barrier.sites[warp.index])),
          "move the barrier out of the divergent branch");
  }
  if (lanes == 0) barrier.sites[warp.index] = site;
  lanes |= bit;
  ++barrier.arrived;
  if (lanes == warp.present) {  // a partial last warp counts in full
    const auto present = static_cast<uint32_t>(std::popcount(warp.present));
    barrier.arrived += 32 - present;
    barrier.arrivals.arrived(&me, site, 32);
    count_instruction(instruction);
  }
  cluster_of(me).memory->release(me, barrier.point, Scope::block);
  if (barrier.arrived > barrier.expected) {
    clash(me, "barrier.overrun", instruction, id, threads, site, barrier,
          concat("barrier ", id, " counts ", barrier.arrived, " arrivals and expects ",
                 barrier.expected),
          "make the count the number of threads that sync or arrive");
  }
  if (barrier.arrived < barrier.expected) return false;
  check_whole_warps(me, instruction, id, barrier, site);
  return true;
}

uint32_t sync(uint32_t id, uint32_t threads, uint32_t predicate, const char* instruction,
              const Site& site) {
  Thread& me = self();
  check_call(me, instruction, id, threads, site);
  me.last_site = site;
  NamedBarrier& barrier = me.block->state->barriers[id];
  barrier.population += predicate;
  if (arrive(me, barrier, instruction, id, threads, site)) {
    const uint32_t population = barrier.population;
    complete(id, *me.block, &me);
    schedule_point();
    return population;
  }
  count_barrier_wait();
  BarrierWait waiting(instruction, site, *me.block, id);
  barrier.waiters.push_back(&me);
  cluster_of(me).scheduler->sleep(waiting);
  return waiting.population;
}

}  // namespace

void barrier_sync(uint32_t id, uint32_t threads, const Site& site) {
  sync(id, threads, 0, "bar.sync", site);
}

void barrier_arrive(uint32_t id, uint32_t threads, const Site& site) {
  Thread& me = self();
  if (threads == 0) {
    fatal(me, "barrier.count", site, call("bar.arrive", id, threads),
          "bar.arrive needs a thread count");
  }
  check_call(me, "bar.arrive", id, threads, site);
  me.last_site = site;
  NamedBarrier& barrier = me.block->state->barriers[id];
  if (arrive(me, barrier, "bar.arrive", id, threads, site)) {
    complete(id, *me.block, nullptr);
  }
  schedule_point();
}

uint32_t barrier_reduce(uint32_t id, uint32_t threads, bool predicate, BarrierReduction reduction,
                        const Site& site) {
  const uint32_t population = sync(id, threads, predicate ? 1 : 0, "bar.red", site);
  if (reduction == BarrierReduction::population) return population;
  if (reduction == BarrierReduction::any) return population != 0 ? 1 : 0;
  return population == (threads == 0 ? self().block->thread_count : threads) ? 1 : 0;
}

void barrier_thread_exited(Thread& thread) {
  const Block& block = *thread.block;
  for (uint32_t left = block.state->whole_block; left != 0; left &= left - 1) {
    const auto id = static_cast<uint32_t>(std::countr_zero(left));
    const NamedBarrier& barrier = block.state->barriers[id];
    if (!barrier.whole_block || (barrier.lanes[thread.warp->index] >> thread.lane & 1) != 0) {
      continue;
    }
    clash(thread, "barrier.exited", "return with bar.sync", id, 0, thread.last_site, barrier,
          concat("a thread returns from the kernel while ", barrier.arrived,
                 " threads wait at barrier ", id, " for all threads of the block"),
          "let every thread reach the barrier, or pass the number of threads that take part");
  }
}

void barrier_block_exited(Block& block) {
  for (uint32_t id = 0; id < kNamedBarriers; ++id) {
    const NamedBarrier& barrier = block.state->barriers[id];
    if (barrier.arrived == 0) continue;
    Violation violation;
    violation.level = Level::warning;
    violation.rule = "barrier.pending_at_exit";
    violation.text = concat("the block ends with ", barrier.arrived, " of ", barrier.expected,
                            " arrivals at barrier ", id, ", for which nobody waits");
    violation.accesses = {other_side(barrier, block, id)};
    report(*block.cluster, std::move(violation));
  }
}

}  // namespace halftone::sim

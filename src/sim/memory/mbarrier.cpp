#include "sim/memory/mbarrier.h"

#include <algorithm>

#include "sim/counters.h"
#include "sim/memory/cluster_memory.h"
#include "sim/memory/memory.h"

namespace halftone::sim {

namespace {

constexpr int64_t kMaxCount = (1 << 20) - 1;

class BarrierWait final : public Waiting {
 public:
  BarrierWait(const Barrier& barrier, uint32_t parity, const Site& site)
      : Waiting("mbarrier.try_wait", site), barrier_(barrier), parity_(parity) {}
  const void* key() const override { return &barrier_; }
  std::string text() const override {
    std::string text = barrier_.text() + ", phase " + std::to_string(barrier_.phase) +
                       " (waited for with parity " + std::to_string(parity_) +
                       "): " + std::to_string(barrier_.pending) + " of " +
                       std::to_string(barrier_.expected) + " arrivals missing";
    if (barrier_.expected_bytes != 0 || barrier_.bytes != 0) {
      text += ", " + std::to_string(barrier_.bytes) + " of " +
              std::to_string(barrier_.expected_bytes) + " bytes missing";
      for (const auto& [name, bytes] : barrier_.arrived_bytes) {
        text += "; " + name + " brought " + std::to_string(bytes);
      }
    }
    const std::string who = barrier_.arrivals.text(key());
    return who.empty() ? text : text + "; " + who;
  }

 private:
  const Barrier& barrier_;
  uint32_t parity_;
};

std::string state_text(const Barrier& barrier) {
  return "phase " + std::to_string(barrier.phase) + ", " + std::to_string(barrier.pending) +
         " of " + std::to_string(barrier.expected) + " arrivals pending, " +
         std::to_string(barrier.bytes) + " bytes to come";
}

std::string bytes_text(const Barrier& barrier) {
  std::string text = std::to_string(barrier.expected_bytes) + " bytes expected";
  for (const auto& [name, bytes] : barrier.arrived_bytes) {
    text += "; " + name + " brought " + std::to_string(bytes);
  }
  for (const Operation* work : barrier.in_flight) {
    text += "; on its way: " + work->text();
  }
  return text;
}

void broken(Agent& agent, Barrier& barrier, const char* rule, const Site& site, const char* what,
            std::string text, std::string fix) {
  if (barrier.broken) return;
  barrier.broken = true;
  if (memory_of(agent).checking) {
    report(agent, Level::error, rule, site, what, std::move(text), std::move(fix));
  }
}

// After every change: does the phase complete, or can it no longer?
void settle(Agent& agent, Barrier& barrier, const Site& site, const char* what) {
  if (barrier.bytes > kMaxCount || barrier.bytes < -kMaxCount) {
    broken(
        agent, barrier, "mbarrier.bytes_range", site, what,
        barrier.text() + ": its byte count leaves -(2^20 - 1) to 2^20 - 1; " + bytes_text(barrier),
        "expect and copy less than 1 MiB a phase");
  }
  if (barrier.pending < 0) {
    broken(agent, barrier, "mbarrier.underflow", site, what,
           barrier.text() + ": more arrivals in phase " + std::to_string(barrier.phase) +
               " than the " + std::to_string(barrier.expected) + " it was made for",
           "initialise it with the number of arrivals a phase gets");
    barrier.pending = 0;
  }
  if (barrier.pending != 0) return;
  if (barrier.bytes < 0) {
    broken(agent, barrier, "mbarrier.too_many_bytes", site, what,
           barrier.text() + ": phase " + std::to_string(barrier.phase) +
               " has got more bytes than expected and can never complete: " + bytes_text(barrier),
           "make expect_tx the sum of the bytes of all copies of the phase");
    return;
  }
  if (barrier.bytes != 0) return;
  ClusterMemory& memory = memory_of(agent);
  if (memory.checking && !barrier.in_flight.empty()) {
    broken(agent, barrier, "mbarrier.bytes_left_over", site, what,
           barrier.text() + ": phase " + std::to_string(barrier.phase) +
               " completes while bytes of it are still on their way: " + bytes_text(barrier),
           "make expect_tx the sum of the bytes of all copies of the phase, in the instruction "
           "that makes the last arrival");
  }
  if (memory.checking) {
    barrier.local.add_all({barrier.component, barrier.byte_epoch()});
    Accumulator all;
    all.add(memory.joiner, barrier.done_local);
    all.add(memory.joiner, barrier.local.knowledge());
    barrier.done_local = all.knowledge();
    all.clear();
    all.add(memory.joiner, barrier.done_remote);
    all.add(memory.joiner, barrier.remote.knowledge());
    barrier.done_remote = all.knowledge();
    barrier.local.clear();
    barrier.remote.clear();
  }
  ++barrier.phase;
  barrier.pending = barrier.expected;
  barrier.expected_bytes = 0;
  barrier.arrived_bytes.clear();
  barrier.observed = false;
  barrier.arrivals.completed();
  barrier.queue.wake_all();
}

void check_count(Agent& agent, int64_t count, const char* what, const Site& site) {
  if (count < 1 || count > kMaxCount) {
    fatal(agent, "mbarrier.count", site, what,
          std::string(what) + " with count " + std::to_string(count) + ", outside 1 to 2^20 - 1");
  }
}

Barrier* wait_target(Thread& thread, uint32_t address, const char* what, const Site& site) {
  if (shared_rank(thread, address) != thread.block->rank) {
    fatal(thread, "mbarrier.remote_wait", site, what,
          std::string(what) +
              " on an mbarrier of another block: only arrive, expect_tx and "
              "complete_tx may be remote",
          "wait on an mbarrier of the block's own, and have the others arrive there");
  }
  Barrier* barrier = live_barrier(thread, address, what, site);
  if (barrier != nullptr) check_barrier_visible(thread, *barrier, false, what, site);
  return barrier;
}

// What every arrival says, however weak: the wgmma this thread has waited for have read their
// operands. Nothing needs to be made visible for that, so the place may be written again.
void release_reads(Thread& thread, Barrier& barrier) {
  const std::vector<Pipeline>& pipelines = memory_of(*thread.block).wgmma;
  const uint32_t warpgroup = thread.warp->index / 4, waited = state_of(thread).wgmma_groups.waited;
  if (warpgroup < pipelines.size() && waited != 0) {
    barrier.local.add_async({pipelines[warpgroup].component, waited});
  }
}

void first_arrival(Agent& agent, Barrier& barrier, const char* what, const Site& site) {
  if (barrier.observed || barrier.phase == 0) return;
  barrier.observed = true;
  if (!memory_of(agent).strict) return;
  report(agent, Level::strict, "mbarrier.unobserved", site, what,
         barrier.text() + ": phase " + std::to_string(barrier.phase - 1) +
             " was completed and nobody waited for it before the next one began",
         "each phase must be observed by a successful test_wait or try_wait");
}

}  // namespace

std::string Barrier::text() const {
  return "mbarrier " + (name.empty() ? "" : name + " ") + "(" + hex(address) +
         (block.block->cluster->block_count > 1
              ? " of block " + std::to_string(block.block->rank) + " of the cluster"
              : "") +
         ")";
}

Barrier* BlockMemory::find(uint32_t offset) {
  const auto found = barriers.find(offset);
  return found == barriers.end() || !found->second->live ? nullptr : found->second.get();
}

Barrier* live_barrier(Agent& agent, uint32_t address, const char* what, const Site& site) {
  const Place place = locate(agent, address, 8, 8, what, site);
  Barrier* barrier = place.block->find(place.offset);
  if (barrier == nullptr) {
    fatal(agent, "mbarrier.not_live", site, what,
          std::string(what) + " on " + hex(place.offset) + ", where no mbarrier is live",
          "mbarrier.init first, and a barrier of the block after it");
  }
  return barrier;
}

void check_barrier_visible(Thread& thread, Barrier& barrier, bool async, const char* what,
                           const Site& site) {
  ClusterMemory& memory = memory_of(thread);
  if (!memory.checking) return;
  const ThreadState& state = state_of(thread);
  const bool remote = barrier.block.block != thread.block;
  const Epoch init = barrier.init;
  const bool own = init.component == state.component;
  // fence.mbarrier_init and a cluster barrier, which may be relaxed, hand it to all of the cluster.
  const bool published = barrier.init_fenced && thread.cluster_waits > barrier.fenced_at;
  if (!own && !published && !state.ordered.knows(init.component, init.value)) {
    Violation violation;
    violation.rule = "mbarrier.init_not_ordered";
    violation.text = std::string(what) + " on " + barrier.text() +
                     " is not in order after its mbarrier.init at " + to_string(barrier.init_site);
    violation.fix =
        remote ? "fence.mbarrier_init by the thread that initialises, then a cluster barrier"
               : "a barrier of the block after mbarrier.init";
    violation.accesses.push_back(access(thread, site, what));
    if (const Thread* maker = memory.component(init.component).thread) {
      violation.accesses.push_back(access(*maker, barrier.init_site, "mbarrier.init"));
    }
    report(thread, std::move(violation));
    return;
  }
  if (remote && !barrier.init_fenced) {
    report(thread, Level::error, "mbarrier.init_not_fenced", site, what,
           std::string(what) + " on " + barrier.text() +
               " of another block, whose initialisation was not made visible to the cluster",
           "fence.mbarrier_init.release.cluster after mbarrier.init, before the cluster barrier");
    return;
  }
  if (async && memory.strict && !barrier.init_fenced) {
    const bool visible = own ? init.value <= state.async_epoch
                             : state.async && (*state.async)[init.component] >= init.value;
    if (visible) return;
    report(thread, Level::strict, "mbarrier.init_not_fenced", site, what,
           std::string(what) + " signals " + barrier.text() +
               ", whose initialisation was not made visible to the asynchronous proxy",
           "fence.mbarrier_init (or fence.proxy.async) after mbarrier.init");
  }
}

void mbarrier_init(Thread& thread, uint32_t address, uint32_t count, const Site& site) {
  constexpr const char* what = "mbarrier.init";
  const Place place = locate(thread, address, 8, 8, what, site);
  if (place.block->block != thread.block) {
    fatal(thread, "mbarrier.remote_init", site, what,
          "mbarrier.init in the shared memory of another block");
  }
  check_count(thread, count, what, site);
  ClusterMemory& memory = memory_of(thread);
  auto& slot = place.block->barriers[place.offset];
  if (slot == nullptr) slot = std::make_unique<Barrier>(*place.block, place.offset);
  Barrier& barrier = *slot;
  if (barrier.live && memory.checking) {
    report(thread, Level::error, "mbarrier.init_live", site, what,
           "mbarrier.init of " + barrier.text() + ", which is live since " +
               to_string(barrier.init_site),
           "mbarrier.inval first");
  }
  if (memory.checking) {
    // As a plain write of its 8 bytes: earlier uses of the memory must be over.
    if (!barrier.live) write_shared(thread, address, uint64_t{0}, site);
    ThreadState& state = state_of(thread);
    place.block->shadow->set_barrier(place.offset / 4, true);
    place.block->shadow->set_barrier(place.offset / 4 + 1, true);
    if (barrier.component == 0) {
      barrier.component = memory.new_component({ComponentInfo::Kind::bytes, nullptr, &barrier});
    }
    barrier.epoch_base += static_cast<uint32_t>(barrier.phase) + 1;
    barrier.init = {state.component, state.epoch};
    barrier.init_fenced = false;
    barrier.init_site = site;
  }
  barrier.live = true;
  barrier.broken = false;
  barrier.phase = 0;
  barrier.expected = count;
  barrier.pending = count;
  barrier.bytes = 0;
  barrier.expected_bytes = 0;
  barrier.observed = true;
  barrier.arrived_bytes.clear();
  barrier.local.clear();
  barrier.remote.clear();
  barrier.done_local = barrier.done_remote = {};
  barrier.arrivals.clear();
}

void mbarrier_inval(Thread& thread, uint32_t address, const Site& site) {
  constexpr const char* what = "mbarrier.inval";
  Barrier* barrier = wait_target(thread, address, what, site);
  if (barrier == nullptr) return;
  barrier->live = false;
  if (!memory_of(thread).checking) return;
  if (!barrier->in_flight.empty() || barrier->bytes != 0) {
    report(thread, Level::error, "mbarrier.inval_in_use", site, what,
           "mbarrier.inval of " + barrier->text() + ": " + state_text(*barrier));
  }
  Shadow& shadow = *barrier->block.shadow;
  shadow.set_barrier(barrier->address / 4, false);
  shadow.set_barrier(barrier->address / 4 + 1, false);
}

void mbarrier_arrive(Thread& thread, uint32_t address, const Arrive& arrive, const Site& site) {
  const char* what = arrive.expect_bytes != 0 ? "mbarrier.arrive.expect_tx"
                     : arrive.drop            ? "mbarrier.arrive_drop"
                                              : "mbarrier.arrive";
  Barrier& barrier = *live_barrier(thread, address, what, site);
  check_barrier_visible(thread, barrier, false, what, site);
  check_count(thread, arrive.count, what, site);
  ClusterMemory& memory = memory_of(thread);
  first_arrival(thread, barrier, what, site);
  const bool remote = barrier.block.block != thread.block;
  if (memory.checking) {
    const bool releases = arrive.order != Order::relaxed;
    if (releases && !remote) {
      memory.release(state_of(thread), barrier.local);
    } else if (releases && arrive.scope != MemoryScope::cta) {
      memory.release(state_of(thread), barrier.remote);
    } else {
      release_reads(thread, barrier);
      if (releases) ++state_of(thread).epoch;  // nothing else that the other block may build on
    }
  }
  barrier.arrivals.arrived(&thread, site, arrive.count);
  barrier.bytes += arrive.expect_bytes;
  barrier.expected_bytes += arrive.expect_bytes;
  if (arrive.drop) barrier.expected -= std::min(barrier.expected, arrive.count);
  barrier.pending -= arrive.count;
  settle(thread, barrier, site, what);
  schedule_point();
}

void mbarrier_expect_tx(Thread& thread, uint32_t address, uint32_t bytes, const Site& site) {
  constexpr const char* what = "mbarrier.expect_tx";
  Barrier& barrier = *live_barrier(thread, address, what, site);
  check_barrier_visible(thread, barrier, false, what, site);
  barrier.bytes += bytes;
  barrier.expected_bytes += bytes;
  settle(thread, barrier, site, what);
}

void mbarrier_complete_tx(Thread& thread, uint32_t address, uint32_t bytes, const Site& site) {
  Barrier& barrier = *live_barrier(thread, address, "mbarrier.complete_tx", site);
  check_barrier_visible(thread, barrier, false, "mbarrier.complete_tx", site);
  complete_bytes(thread, address, bytes, nullptr, site);
}

void complete_bytes(Agent& agent, uint32_t address, uint32_t bytes, Operation* work,
                    const Site& site) {
  const char* what = work != nullptr ? work->operation.instruction : "mbarrier.complete_tx";
  Barrier& barrier = *live_barrier(agent, address, what, site);
  std::erase(barrier.in_flight, work);
  barrier.bytes -= bytes;
  barrier.arrived_bytes.emplace_back(std::string(what) + " at " + to_string(site), bytes);
  settle(agent, barrier, site, what);
}

void arrive_async(Agent& agent, uint32_t address, const Accumulator& knowledge, const Site& site) {
  Barrier& barrier = *live_barrier(agent, address, "arrive", site);
  ClusterMemory& memory = memory_of(agent);
  if (memory.checking) {
    barrier.local.add(memory.joiner, knowledge.knowledge());
    first_arrival(agent, barrier, "arrive", site);
  }
  barrier.arrivals.arrived(nullptr, site, 1);
  barrier.pending -= 1;
  settle(agent, barrier, site, "arrive");
}

namespace {

bool completed(const Barrier& barrier, uint32_t parity) { return (barrier.phase & 1) != parity; }

// The wait has succeeded: what it gives the thread.
void observed(Thread& thread, Barrier& barrier, Order order, MemoryScope scope) {
  barrier.observed = true;
  ClusterMemory& memory = memory_of(thread);
  if (!memory.checking || order == Order::relaxed) return;
  memory.acquire(state_of(thread), barrier.done_local);
  if (scope != MemoryScope::cta) memory.acquire(state_of(thread), barrier.done_remote);
}

// A thread that waited for phase k asks for the other parity: it means phase k + 1.
void check_alias(Thread& thread, Barrier& barrier, uint32_t parity, const Site& site) {
  if (!memory_of(thread).checking) return;
  auto& waits = state_of(thread).last_waits;
  const auto found = std::find_if(waits.begin(), waits.end(),
                                  [&](const auto& wait) { return wait.first == &barrier; });
  if (found == waits.end()) return;
  const uint64_t wanted = found->second + 1;
  if ((wanted & 1) != parity || barrier.phase < wanted + 2) return;
  report(thread, Level::error, "mbarrier.phase_aliasing", site, "mbarrier.try_wait",
         "a wait on " + barrier.text() + " for phase " + std::to_string(wanted) + " (parity " +
             std::to_string(parity) + "), but phase " + std::to_string(barrier.phase) +
             " is already being filled: the parity stands for another phase",
         "nobody may arrive for the next phase but one before all have waited: return the buffer "
         "only after the wait");
}

void remember_wait(Thread& thread, const Barrier& barrier, uint32_t parity) {
  if (!memory_of(thread).checking || barrier.phase == 0) return;
  const uint64_t phase = barrier.phase - 1;
  if ((phase & 1) != parity) return;  // a fresh barrier's other parity
  auto& waits = state_of(thread).last_waits;
  for (auto& wait : waits) {
    if (wait.first == &barrier) {
      wait.second = phase;
      return;
    }
  }
  waits.emplace_back(&barrier, phase);
}

bool try_wait(Thread& thread, uint32_t address, uint32_t parity, bool sleeps, const char* what,
              Order order, MemoryScope scope, const Site& site) {
  Barrier& barrier = *wait_target(thread, address, what, site);
  parity &= 1;
  check_alias(thread, barrier, parity, site);
  count_barrier_wait();
  if (!completed(barrier, parity)) {
    const Cluster& cluster = cluster_of(thread);
    const bool random = cluster.launch->options.schedule != SimulatorOptions::Schedule::fifo;
    if (!sleeps || (random && choose(*thread.block->cluster, 16) == 0)) {
      spin(site);
      if (!completed(barrier, parity)) return false;
    } else {
      const BarrierWait waiting(barrier, parity, site);
      wait_until(barrier.queue, waiting, [&] { return completed(barrier, parity); });
    }
  }
  observed(thread, barrier, order, scope);
  remember_wait(thread, barrier, parity);
  return true;
}

}  // namespace

bool mbarrier_test_wait(Thread& thread, uint32_t barrier, uint32_t parity, Order order,
                        MemoryScope scope, const Site& site) {
  return try_wait(thread, barrier, parity, false, "mbarrier.test_wait", order, scope, site);
}

bool mbarrier_try_wait(Thread& thread, uint32_t barrier, uint32_t parity, Order order,
                       MemoryScope scope, const Site& site) {
  return try_wait(thread, barrier, parity, true, "mbarrier.try_wait", order, scope, site);
}

void name_barrier(Thread& thread, uint32_t address, std::string name) {
  Place place = locate(thread, address, 8, 8, "name_barrier", Site::current());
  auto& slot = place.block->barriers[place.offset];
  if (slot == nullptr) slot = std::make_unique<Barrier>(*place.block, place.offset);
  slot->name = std::move(name);
}

}  // namespace halftone::sim

// mbarriers: phase, expected and pending arrivals, pending bytes. A barrier is named by its shared
// address; addresses of other blocks (sim/memory/memory.h) are allowed where the instruction allows
// them.
#pragma once
#include <cstdint>
#include <string>

#include "sim/execution/thread.h"
#include "sim/memory/order.h"

namespace halftone::sim {

void mbarrier_init(Thread&, uint32_t barrier, uint32_t count, const Site&);
void mbarrier_inval(Thread&, uint32_t barrier, const Site&);

// mbarrier.arrive and its forms, in one: adds `expect_bytes` to the bytes to come, lowers the
// expected count for good when `drop`, then makes `count` arrivals.
struct Arrive {
  uint32_t count = 1;
  uint32_t expect_bytes = 0;
  bool drop = false;
  Order order = Order::release;  // or relaxed
  MemoryScope scope = MemoryScope::cta;
};
void mbarrier_arrive(Thread&, uint32_t barrier, const Arrive&, const Site&);
// mbarrier.expect_tx (relaxed, no arrival) and mbarrier.complete_tx (by a thread: simulates what an
// engine does; engines do it through their Completion).
void mbarrier_expect_tx(Thread&, uint32_t barrier, uint32_t bytes, const Site&);
void mbarrier_complete_tx(Thread&, uint32_t barrier, uint32_t bytes, const Site&);

// True when the phase with that parity has completed; never waits. A false answer lets others run.
// The caller must use the result (rule mbarrier.result_ignored cannot be seen from here).
bool mbarrier_test_wait(Thread&, uint32_t barrier, uint32_t parity, Order, MemoryScope,
                        const Site&);
// As above, may sleep. Under the random schedules it is sometimes false for no reason, as the
// instruction is when its time limit passes: call it in a loop.
bool mbarrier_try_wait(Thread&, uint32_t barrier, uint32_t parity, Order, MemoryScope, const Site&);

// Reports call the barrier "full[2]" instead of its address. Kept until it is named again.
void name_barrier(Thread&, uint32_t barrier, std::string name);

}  // namespace halftone::sim

// Barriers of a block and of a cluster, the register pool, programmatic launch.
#pragma once
#include <cstdint>

#include "sim/execution/thread.h"

namespace halftone::sim {

// bar.sync id, threads. `threads` 0: all of the block. Called by each thread; the barrier counts
// warps as the hardware does. `aligned`: lanes must arrive together.
void barrier_sync(uint32_t id, uint32_t threads, const Site&);
// bar.arrive: a count is obligatory.
void barrier_arrive(uint32_t id, uint32_t threads, const Site&);
// bar.red: the reduction of `predicate` over the threads of the barrier, for all of them.
enum class BarrierReduction : uint8_t { population, all, any };
uint32_t barrier_reduce(uint32_t id, uint32_t threads, bool predicate, BarrierReduction,
                        const Site&);

// barrier.cluster.arrive / wait. `release` false is the relaxed form.
void cluster_arrive(bool release, const Site&);
void cluster_wait(const Site&);

// setmaxnreg: the warp gives registers back to its block's pool, or takes some and waits until it
// has enough.
void setmaxnreg(uint32_t count, bool increase, const Site&);

// griddepcontrol.wait / launch_dependents: order is checked, nothing else happens.
void grid_dependency_wait(const Site&);
void grid_launch_dependents(const Site&);

}  // namespace halftone::sim

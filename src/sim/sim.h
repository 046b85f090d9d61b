// The simulator as hw bodies see it: execution. Memory, mbarriers and asynchronous work are in
// "sim/memory/memory.h", arithmetic in "sim/numerics/...". hw includes these only outside nvcc.
//
// A body is the model of one instruction as one thread executes it:
//   sim::Thread& me = sim::self();                     // position, block, warp, lane
//   sim::warp_collective("shfl.sync.idx", mask, mine, model, site);
//   sim::barrier_sync(id, threads, site);
// Whatever the simulated chip lacks is refused first: sim::require(Feature::wgmma, "wgmma", site).
#pragma once
#include "hw/features.h"
#include "sim/chip.h"
#include "sim/counters.h"
#include "sim/execution/barrier.h"
#include "sim/execution/collective.h"
#include "sim/execution/schedule.h"
#include "sim/execution/thread.h"
#include "sim/report.h"

namespace halftone::sim {

inline Arch arch() { return launch_of(self()).chip.arch; }

// Fatal when the simulated architecture does not have `feature`.
inline void require(hw::Feature feature, const char* instruction, const Site& site) {
  if (!hw::available(feature, arch())) require_feature(false, instruction, site);
}

// Special registers.
inline Dim3 thread_index() { return self().position; }
inline Dim3 block_index() { return self().block->index; }
inline Dim3 block_shape() { return launch_of(self()).shape.block; }
inline Dim3 grid_shape() { return launch_of(self()).shape.grid; }
inline Dim3 cluster_shape() { return launch_of(self()).shape.cluster; }
inline uint32_t cluster_rank() { return self().block->rank; }
inline uint32_t cluster_size() { return cluster_of(self()).block_count; }
inline uint32_t lane_index() { return self().lane; }
inline uint32_t warp_index() { return self().warp->index; }
// %smid, %globaltimer: distinct and increasing, nothing more.
uint32_t sm_index();
uint64_t clock_now();

}  // namespace halftone::sim

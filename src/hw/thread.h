// Who a thread is: its place in block, warp, cluster and grid.
#pragma once
#include <cstdint>

#include "hw/address.h"

namespace halftone::hw {

struct Index3 {
  uint32_t x = 0, y = 0, z = 0;
};

#if !defined(__CUDACC__)
namespace model {
inline Index3 index_of(const Dim3& d) { return {d.x, d.y, d.z}; }
}  // namespace model
#endif

HT_DEVICE Index3 thread_index(Site = Site::current()) {
  Index3 index;
#if HT_GPU
  index = {threadIdx.x, threadIdx.y, threadIdx.z};
#elif !defined(__CUDACC__)
  index = model::index_of(sim::thread_index());
#endif
  return index;
}

// Threads of the block.
HT_DEVICE Index3 block_size(Site = Site::current()) {
  Index3 size;
#if HT_GPU
  size = {blockDim.x, blockDim.y, blockDim.z};
#elif !defined(__CUDACC__)
  size = model::index_of(sim::block_shape());
#endif
  return size;
}

HT_DEVICE Index3 block_index(Site = Site::current()) {
  Index3 index;
#if HT_GPU
  index = {blockIdx.x, blockIdx.y, blockIdx.z};
#elif !defined(__CUDACC__)
  index = model::index_of(sim::block_index());
#endif
  return index;
}

// Blocks of the grid.
HT_DEVICE Index3 grid_size(Site = Site::current()) {
  Index3 size;
#if HT_GPU
  size = {gridDim.x, gridDim.y, gridDim.z};
#elif !defined(__CUDACC__)
  size = model::index_of(sim::grid_shape());
#endif
  return size;
}

// The thread's number in its warp.
HT_DEVICE uint32_t lane_index(Site = Site::current()) {
  uint32_t lane = 0;
#if HT_GPU
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
#elif !defined(__CUDACC__)
  lane = sim::lane_index();
#endif
  return lane;
}

// The warp's number in a block of one dimension.
HT_DEVICE uint32_t warp_index(Site site = Site::current()) { return thread_index(site).x / 32; }

// The multiprocessor that runs the block.
HT_DEVICE uint32_t multiprocessor_index(Site = Site::current()) {
  uint32_t index = 0;
#if HT_GPU
  asm volatile("mov.u32 %0, %%smid;" : "=r"(index));
#elif !defined(__CUDACC__)
  index = sim::sm_index();
#endif
  return index;
}

// Rank of the block in its cluster.
template <class Target = ThisTarget>
HT_DEVICE uint32_t cluster_rank(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
  uint32_t rank = 0;
#if HT_GPU
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "%cluster_ctarank", site);
  rank = sim::cluster_rank();
#endif
  return rank;
}

// Blocks of the cluster.
template <class Target = ThisTarget>
HT_DEVICE uint32_t cluster_size(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
  uint32_t size = 1;
#if HT_GPU
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "%cluster_nctarank", site);
  size = sim::cluster_size();
#endif
  return size;
}

// The block's place inside its cluster.
template <class Target = ThisTarget>
HT_DEVICE Index3 block_in_cluster(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
  Index3 index;
#if HT_GPU
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(index.x));
  asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(index.y));
  asm("mov.u32 %0, %%cluster_ctaid.z;" : "=r"(index.z));
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "%cluster_ctaid", site);
  const Dim3 block = sim::block_index(), shape = sim::cluster_shape();
  index = {block.x % shape.x, block.y % shape.y, block.z % shape.z};
#endif
  return index;
}

// The cluster's place in the grid.
template <class Target = ThisTarget>
HT_DEVICE Index3 cluster_index(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
  Index3 index;
#if HT_GPU
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index.x));
  asm("mov.u32 %0, %%clusterid.y;" : "=r"(index.y));
  asm("mov.u32 %0, %%clusterid.z;" : "=r"(index.z));
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "%clusterid", site);
  index = model::index_of(sim::cluster_of(sim::self()).position);
#endif
  return index;
}

// True for one thread of the warp; which one is not specified. All threads of `mask` call it.
template <class Target = ThisTarget>
HT_DEVICE bool elect_one(uint32_t mask = 0xffffffff, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "elect.sync exists from sm_90 on");
  uint32_t elected = 0;
#if HT_GPU
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, %1;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(elected)
               : "r"(mask));
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "elect.sync", site);
  elected = sim::elect_leader(mask, site) == sim::lane_index();
#endif
  return elected != 0;
}

// Names what the thread does in its block ("producer"): reports of the simulator say it.
HT_DEVICE void set_role(const char* role, Site = Site::current()) {
#if HT_GPU
  static_cast<void>(role);
#elif !defined(__CUDACC__)
  sim::set_role(role);
#endif
}

// Lets other threads run for about that time.
HT_DEVICE void nanosleep(uint32_t nanoseconds, Site site = Site::current()) {
#if HT_GPU
  asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds));
#elif !defined(__CUDACC__)
  static_cast<void>(nanoseconds);
  sim::spin(site);
#endif
}

// Ends the launch with an error.
HT_DEVICE void trap(Site site = Site::current()) {
#if HT_GPU
  asm volatile("trap;");
#elif !defined(__CUDACC__)
  sim::fatal(sim::self(), "trap", site, "executes trap", "the kernel ends itself by a trap");
#endif
}

// A clock of the device in nanoseconds.
HT_DEVICE uint64_t global_timer(Site = Site::current()) {
  uint64_t now = 0;
#if HT_GPU
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
#elif !defined(__CUDACC__)
  now = sim::clock_now();
#endif
  return now;
}

}  // namespace halftone::hw

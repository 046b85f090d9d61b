// Model of wgmma (sm_90a): a warpgroup issues D (64 x N) += A B; the tensor core reads A and B when
// the schedule lets it.
#pragma once
#include <cstdint>

#include "sim/execution/thread.h"
#include "sim/numerics/mma_rules.h"
#include "tile/descriptor.h"

namespace halftone::sim {

struct Wgmma {
  const char* kind;  // of the counter: "wgmma.bf16"
  MmaElement a, b;
  MmaAccumulator accumulator;
  int n;
  int element_bits;
  tile::Major a_major = tile::Major::k, b_major = tile::Major::k;
};
// Every thread of the warpgroup calls these. A in shared memory: `a` is a descriptor.
void wgmma(const Wgmma&, void* d, tile::WgmmaDescriptor a, tile::WgmmaDescriptor b, bool accumulate,
           const Site&);
// A in four registers of each thread.
void wgmma(const Wgmma&, void* d, const uint32_t* a, tile::WgmmaDescriptor b, bool accumulate,
           const Site&);

// wgmma.fence, commit_group and wait_group.
void wgmma_fence(const Site&);
void wgmma_commit(const Site&);
void wgmma_wait(uint32_t pending, const Site&);

}  // namespace halftone::sim

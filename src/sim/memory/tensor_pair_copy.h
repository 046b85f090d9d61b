// Tensor copies of sm_100a beyond sim/memory/tensor_map.h: four rows at once, and loads for pairs
// of blocks.
#pragma once
#include <cstdint>

#include "sim/execution/thread.h"

namespace halftone::sim {

// `map`: the object a kernel has (hw::TensorMap), which holds a TensorMap.
// `at`: the column, then four rows. `blocks` 0: `destination` alone and `barrier` (an address of
// any block of the cluster); else the same offset in every block whose rank's bit is set, and with
// `cta_group` 2 the barrier of each one's pair that lies in the block with the parity of
// `barrier`'s.
void tensor_load_gather4(const void* map, const int32_t* at, uint32_t destination, uint32_t barrier,
                         uint32_t blocks, uint32_t cta_group, const Site&);
void tensor_store_scatter4(const void* map, const int32_t* at, uint32_t source, const Site&);
void tensor_prefetch_gather4(const void* map, const int32_t* at, const Site&);
// A box of `rank` dimensions, with cta_group 2.
void tensor_load_pair(const void* map, uint32_t rank, const int32_t* at, uint32_t destination,
                      uint32_t barrier, uint32_t blocks, const Site&);

}  // namespace halftone::sim

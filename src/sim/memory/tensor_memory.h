// Tensor memory: 128 lanes of 512 columns of 32 bits in each block (sm_100a). An address is
// lane << 16 | column.
#pragma once
#include <cstdint>

#include "sim/execution/thread.h"

namespace halftone::sim {

inline constexpr uint32_t kTensorLanes = 128, kTensorColumns = 512;

// tcgen05.alloc, dealloc, relinquish_alloc_permit. Called by every lane of the warp (each is the
// collective itself). alloc waits until the columns are free, then writes their address to shared
// memory at `destination` (generic proxy). cta_group 2: one warp of each block of the pair.
void tensor_alloc(Thread&, uint32_t cta_group, uint32_t destination, uint32_t columns, const Site&);
void tensor_dealloc(Thread&, uint32_t cta_group, uint32_t address, uint32_t columns, const Site&);
void tensor_relinquish(Thread&, uint32_t cta_group, const Site&);

// `columns` neighbouring cells of one lane, in the tensor memory of `block` (the agent's own, or
// that of its pair). Outside the allocation is an error and reads NaN. `then_written`: the agent
// goes on to write the same cells, as an accumulator.
void read_tensor(Agent&, Block& block, uint32_t address, uint32_t columns, uint32_t* to,
                 const Site&, bool then_written = false);
void write_tensor(Agent&, Block& block, uint32_t address, uint32_t columns, const uint32_t* from,
                  const Site&);
// Only bytes of a cell whose bit is set in `mask` (4 bits) are written.
void write_tensor_bytes(Agent&, Block& block, uint32_t address, uint32_t value, uint32_t mask,
                        const Site&);

// tcgen05.ld, st: warp w of the block may touch lanes 32 (w % 4) up to 31 more. False and a report
// when the lane field of `address` is another one's.
bool check_tensor_window(Thread&, uint32_t address, const Site&);

}  // namespace halftone::sim

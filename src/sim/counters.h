// What a launch did, for bounds. hw bodies and memory models call these; with counters off they
// return at once.
#pragma once
#include <cstdint>

#include "sim/execution/thread.h"

namespace halftone::sim {

// One execution of an instruction; the name is a literal. Collectives and barriers count
// themselves: not again from a model.
void count_instruction(const char* name, uint64_t times = 1);
// Tensor-core multiply-adds; kind ends in the format: "mma.sync.bf16", "wgmma.e4m3",
// "tcgen05.nvf4".
void count_multiply_adds(const char* kind, uint64_t multiply_adds);
void count_mufu(uint64_t operations = 1);
void count_barrier_wait();

// A plain shared access of one thread (4, 8, 16 bytes or less). The n-th of each lane of a warp at
// one site are one warp-wide access; banks are counted when all lanes have made theirs.
void count_shared(Thread&, uint32_t address, uint32_t bytes, const char* what, const Site&);
// ldmatrix, stmatrix: eight rows of 16 bytes, one phase.
void count_shared_rows(const uint32_t rows[8], const char* what, const Site&);
// Shared memory read or written by an engine.
void count_async_shared(const Agent&, uint64_t bytes);
// Global memory, by a thread or (agent in the async proxy) by an engine.
void count_global(const Agent&, const void* address, uint64_t bytes, bool write);

// Wavefronts that 32 lanes' accesses need: 32 banks of 4 bytes; 8-byte accesses go by half warps,
// 16-byte ones by quarter warps; lanes on the same word share it.
uint32_t wavefronts(const uint32_t* addresses, uint32_t mask, uint32_t bytes);

}  // namespace halftone::sim

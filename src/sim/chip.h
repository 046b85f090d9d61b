// The chips that can be simulated: what a launch may ask for, and how fast each unit is.
#pragma once
#include <cstdint>
#include <string_view>

#include "halftone/device.h"

namespace halftone::sim {

struct Chip {
  Arch arch;
  const char* name;  // the product whose figures these are

  // Limits a launch must keep.
  uint32_t shared_per_block;  // largest opt-in dynamic shared memory, bytes
  uint32_t shared_per_sm;     // bytes
  uint32_t shared_reserved;   // bytes the system takes of it for each block
  uint32_t registers_per_sm;  // 32-bit
  uint32_t registers_per_thread;
  uint32_t threads_per_block;
  uint32_t threads_per_sm;
  uint32_t blocks_per_sm;
  uint32_t cluster_size;  // largest portable; 1: no clusters
  uint32_t cluster_size_nonportable;
  uint32_t tensor_memory_columns;  // 0: none
  uint32_t sm_count;

  // Rates, for bounds. Multiply-adds a clock and SM, dense; 0: no such instruction.
  struct Rates {
    double clock_ghz;  // highest sustained by specification
    uint32_t f16, fp8, fp4, int8, tf32;
    uint32_t mufu;          // operations a clock and SM
    uint32_t shared_bytes;  // a clock and SM
    double l2_bytes_per_second;
    double hbm_bytes_per_second;
  } rates;
  const char* source;  // of the rates
};

const Chip& chip(Arch);

// Multiply-adds a clock and SM of a kind such as "wgmma.bf16"; the format is what follows the
// last point. 0 when the chip has none.
uint32_t tensor_rate(const Chip&, std::string_view kind);

}  // namespace halftone::sim

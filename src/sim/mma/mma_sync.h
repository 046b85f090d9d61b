// Models of what a warp does with fragments: mma.sync of sm_80 and later, ldmatrix and stmatrix of
// 16-bit elements.
#pragma once
#include <cstdint>

#include "sim/execution/thread.h"
#include "sim/numerics/mma_rules.h"

namespace halftone::sim {

struct MmaSync {
  const char* name;  // "mma.sync.m16n8k16"
  const char* kind;  // of the counter: "mma.sync.bf16"
  MmaElement a, b;
  MmaAccumulator accumulator;
  int k;
  int element_bits;  // in registers; 4: nibbles, which the model spreads into bytes of a and b
  bool saturate = false;
};
// The calling lane's fragments; every lane of the warp calls it. Registers of A: 16 k bits / 1024,
// half as many of B; C and D four of f32 or s32, or two of f16 pairs. D may be C.
void mma_sync(const MmaSync&, void* d, const uint32_t* a, const uint32_t* b, const void* c,
              const Site&);

// One, two or four matrices of 8 x 8, a register each; lane L passes the address of row L % 8 of
// matrix L / 8.
void ldmatrix(int matrices, bool trans, uint32_t* registers, uint32_t row, const Site&);
void stmatrix(int matrices, bool trans, const uint32_t* registers, uint32_t row, const Site&);

}  // namespace halftone::sim

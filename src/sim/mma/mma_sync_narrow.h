// Model of mma.sync of FP8, FP6 and FP4, plain and with block scales (sm_120a), and of the narrow
// forms of ldmatrix and stmatrix (sm_100a, sm_120a).
#pragma once
#include <cstdint>

#include "sim/execution/thread.h"
#include "sim/numerics/mma_rules.h"

namespace halftone::sim {

struct MmaSyncNarrow {
  const char* name;
  MmaElement a, b;  // e2m1_container in a byte, e2m1 packed (K 64)
  MmaAccumulator accumulator = MmaAccumulator::f32;
  MmaScales scales = MmaScales::none;
  // Where the scales are: bytes from `byte` on, of the lanes that `thread` selects.
  int a_byte = 0, a_thread = 0, b_byte = 0, b_thread = 0;
};
// Fragments of the calling lane: a[4], b[2], c and d of four FP32 or two pairs of FP16.
void mma_sync_narrow(const MmaSyncNarrow&, void* d, const uint32_t* a, const uint32_t* b,
                     const void* c, uint32_t a_scales, uint32_t b_scales, const Site&);

// `bits` of an element in its row: 4, 6 or 8. Lane L passes row L % rows of matrix L / rows.
void ldmatrix_m8n16(int bits, int matrices, uint32_t* registers, uint32_t row, const Site&);
void ldmatrix_m16n16_trans(int bits, int matrices, uint32_t* registers, uint32_t row, const Site&);
void stmatrix_m16n8_trans(int matrices, const uint32_t* registers, uint32_t row, const Site&);

}  // namespace halftone::sim

// The arithmetic of one matrix instruction on a whole tile: D[m, n] = A[m, K] * B[n, K] + C[m, n].
//
// One call serves a complete mma.sync, wgmma or tcgen05.mma: operands are decoded once, then
// vectors of outputs are aligned and summed together, with the same bits at every instruction
// level.
#pragma once
#include <cstdint>

#include "halftone/device.h"
#include "halftone/simulator.h"
#include "sim/numerics/mma_rules.h"

namespace halftone::sim {

// Rows of A, or of B (whose rows are columns of the product); K is contiguous.
struct MmaOperand {
  MmaElement type;
  const void* codes;   // [rows, k], element width code_bytes(type)
  int64_t row_stride;  // in elements
  bool negate = false;
  const uint8_t* scales = nullptr;  // [rows, k / scale_block], where the rule has scales
  int64_t scale_stride = 0;
};

struct MmaTile {
  int m, n, k;
  MmaOperand a, b;
  // Accumulators of the rule's type: float, uint16_t or int32_t. D may be C itself.
  const void* c;  // null: zero
  void* d;
  int64_t row_stride, column_stride;  // of both, in elements
  bool saturate = false;              // s32: clamp instead of wrapping
};

// Bit for bit what the chip gives.
void mma_exact(const MmaRule&, const MmaTile&);
void mma_exact(const MmaRule&, const MmaTile&, CpuLevel);
// FP32 multiply-adds in the order of k: for tests of layouts and races. Integers and 4-bit block
// formats stay exact.
void mma_fast(const MmaRule&, const MmaTile&);
void mma_fast(const MmaRule&, const MmaTile&, CpuLevel);
inline void mma(SimulatorOptions::Numerics numerics, const MmaRule& rule, const MmaTile& tile) {
  numerics == SimulatorOptions::Numerics::exact ? mma_exact(rule, tile) : mma_fast(rule, tile);
}
// As mma_exact, one output at a time in wide integers: the definition that the tests hold the
// others against. Slow.
void mma_reference(const MmaRule&, const MmaTile&);
// One of its outputs: the bits of D[row, column] from those of C[row, column].
uint32_t mma_reference_output(const MmaRule&, const MmaTile&, int row, int column, uint32_t c);

}  // namespace halftone::sim

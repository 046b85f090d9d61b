// Models of tcgen05.mma, cp, ld and st. Allocation, commits, waits and fences are in
// sim/memory/tensor_memory.h, sim/memory/async.h and sim/memory/memory.h.
//
// Descriptors, accumulators and shapes are those of src/tile. What no source says clearly is
// refused with a report: docs/findings/unverified-instructions.md lists it.
#pragma once
#include <cstdint>

#include "sim/execution/thread.h"
#include "tile/descriptor.h"
#include "tile/scale_factor.h"
#include "tile/tcgen05_instruction.h"
#include "tile/tensor_memory.h"

namespace halftone::sim {

struct Tcgen05Mma {
  struct OperandA {
    bool in_tensor_memory = false;
    uint64_t bits = 0;  // a descriptor, or an address of tensor memory
  };
  tile::Tcgen05Kind kind = tile::Tcgen05Kind::f16;
  uint32_t cta_group = 1;
  uint32_t d = 0;
  OperandA a;
  tile::Tcgen05Descriptor b;
  uint32_t instruction = 0;
  bool accumulate = false;
  // What only some forms have.
  uint32_t disabled_lanes[8] = {};
  int d_shift = 0;  // D counts 2^-d_shift
  bool weight_stationary = false;
  uint64_t zero_columns = 0;
  int scale_block = 0;  // 16 or 32 elements
  uint32_t a_scales = 0, b_scales = 0;
};
void tcgen05_mma(const Tcgen05Mma&, const Site&);

// `unpack_bits`: 0, or 4 or 6 for the formats b4x16_p64 and b6x16_p32.
void tcgen05_cp(uint32_t cta_group, tile::TensorCopy, uint32_t unpack_bits, uint32_t destination,
                tile::Tcgen05Descriptor source, const Site&);

// ld, st: every lane of the warp calls them with its registers.
struct TensorRegisters {
  tile::TensorShape shape;
  int num;
  int split;    // of 16x32bx2
  bool packed;  // two columns' low halves in a register
};
void tcgen05_ld(const TensorRegisters&, uint32_t address, uint32_t* registers, const Site&);
void tcgen05_st(const TensorRegisters&, uint32_t address, const uint32_t* registers, const Site&);

// tcgen05.shift: refused.
void tcgen05_shift_down(const Site&);

}  // namespace halftone::sim

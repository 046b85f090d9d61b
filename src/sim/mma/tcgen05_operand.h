// Operands of tcgen05.mma fetched from where they lie: matrices by shared-memory descriptor or from
// tensor memory, scales from tensor memory.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/execution/thread.h"
#include "sim/numerics/mma_rules.h"
#include "tile/descriptor.h"
#include "tile/tcgen05_instruction.h"

namespace halftone::sim {

// A matrix of codes as sim/numerics takes them: [rows, k], k contiguous.
struct OperandCodes {
  MmaElement type = MmaElement::bf16;
  int rows = 0, k = 0;
  std::vector<uint8_t> bytes;
  uint8_t* row(int r) { return bytes.data() + static_cast<size_t>(r) * row_bytes(); }
  size_t row_bytes() const {
    return static_cast<size_t>(k) * static_cast<size_t>(code_bytes(type));
  }
};

// How elements lie in the 16 bytes that descriptors and swizzles move as one.
struct OperandStorage {
  MmaElement type;
  int bits;       // of an element
  int per_chunk;  // elements in 16 bytes: FP4 and FP6 of kind::f8f6f4 are padded to 16 of them
};
OperandStorage operand_storage(tile::Tcgen05Kind, tile::Tcgen05Type);

// The broken rule of a descriptor for such an operand, or null.
const char* broken_rule(tile::Tcgen05Descriptor, tile::Major, const OperandStorage&);

// Rows `first` .. `first + rows - 1` of `to` from the shared memory of `block`.
void gather_shared(Agent&, const Block& block, tile::Tcgen05Descriptor, tile::Major,
                   const OperandStorage&, OperandCodes& to, int first, int rows, const Site&);

// Four windows' view of the scales of `rows` rows (block scales of A or B), at `address`: bytes
// `id` to `id + blocks - 1` of column row / 32, lane row % 32 of each window in `windows` (a bit
// each). [rows, blocks]. Reports when the windows differ.
void gather_scales(Agent&, Block& block, uint32_t address, int rows, int blocks, int id,
                   uint32_t windows, const char* operand, uint8_t* to, const Site&);

}  // namespace halftone::sim

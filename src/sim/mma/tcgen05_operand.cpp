#include "sim/mma/tcgen05_operand.h"

#include <cstring>

#include "base/message.h"
#include "sim/memory/memory.h"
#include "sim/sim.h"

namespace halftone::sim {

using tile::Major;
using tile::Swizzle;
using tile::Tcgen05Kind;
using tile::Tcgen05Type;

namespace {

MmaElement element_of(Tcgen05Type type) {
  switch (type) {
    case Tcgen05Type::f16:
      return MmaElement::f16;
    case Tcgen05Type::bf16:
      return MmaElement::bf16;
    case Tcgen05Type::tf32:
      return MmaElement::tf32;
    case Tcgen05Type::e4m3:
      return MmaElement::e4m3;
    case Tcgen05Type::e5m2:
      return MmaElement::e5m2;
    case Tcgen05Type::e2m3:
      return MmaElement::e2m3;
    case Tcgen05Type::e3m2:
      return MmaElement::e3m2;
    case Tcgen05Type::e2m1:
      return MmaElement::e2m1;
    case Tcgen05Type::u8:
      return MmaElement::u8;
    case Tcgen05Type::s8:
      return MmaElement::s8;
  }
  return MmaElement::bf16;
}

// Element `i` of a chunk, into the low bytes of `to`.
void take(const uint8_t* chunk, int i, const OperandStorage& storage, uint8_t* to) {
  if (storage.bits >= 8) {
    const auto bytes = static_cast<size_t>(storage.bits / 8);
    std::memcpy(to, chunk + static_cast<size_t>(i) * bytes, bytes);
    return;
  }
  const int bit = i * storage.bits;
  const uint32_t pair =
      uint32_t{chunk[bit / 8]} | uint32_t{chunk[bit / 8 + 1 < 16 ? bit / 8 + 1 : 15]} << 8;
  *to = static_cast<uint8_t>(pair >> bit % 8 & ((1u << storage.bits) - 1));
}

// Shared address of a byte of `block`, for an agent that may be another block's.
uint32_t address_in(const Agent& agent, const Block& block, uint32_t address) {
  return &block == agent.block ? address : (block.rank + 1) << 24 | address;
}

}  // namespace

OperandStorage operand_storage(Tcgen05Kind kind, Tcgen05Type type) {
  const MmaElement element = element_of(type);
  switch (type) {
    case Tcgen05Type::f16:
    case Tcgen05Type::bf16:
      return {element, 16, 8};
    case Tcgen05Type::tf32:
      return {element, 32, 4};
    case Tcgen05Type::e2m3:
    case Tcgen05Type::e3m2:
      return {element, 6, 16};
    case Tcgen05Type::e2m1:
      return {element, 4, tile::is_packed_fp4(kind) ? 32 : 16};
    default:
      return {element, 8, 16};
  }
}

const char* broken_rule(tile::Tcgen05Descriptor descriptor, Major major,
                        const OperandStorage& storage) {
  if (!descriptor.valid()) return "bits 48:46 are 1, 60:52 are 0, 63:61 are 0, 1, 2, 4 or 6";
  const tile::OperandFields fields = descriptor.decode();
  if (fields.base_offset != 0)
    return "a base offset other than 0 is not verified: patterns start on their boundary";
  if (!fields.valid()) return "start and strides are multiples of 16 below 2^18";
  if (!fields.line_aligned())
    return "the pattern of the swizzle starts on its boundary (1024, 512 or 256 bytes)";
  const bool atoms32 = fields.swizzle == Swizzle::b128_atom32;
  if (major == Major::k) return atoms32 ? "atoms of 32 bytes are for MN-major operands" : nullptr;
  if (storage.bits < 8) return "MN-major FP4 and FP6 are not verified";
  if ((storage.bits == 32) != atoms32)
    return "MN-major operands of 32 bits, and only they, take swizzle 128 with 32-byte atoms";
  return nullptr;
}

void gather_shared(Agent& agent, const Block& block, tile::Tcgen05Descriptor descriptor,
                   Major major, const OperandStorage& storage, OperandCodes& to, int first,
                   int rows, const Site& site) {
  const tile::OperandFields fields = descriptor.decode();
  const auto code = static_cast<size_t>(code_bytes(to.type));
  uint8_t chunk[16];
  const auto fetch = [&](uint32_t mn_byte, uint32_t k_byte, uint32_t bytes) {
    const uint32_t offset = tile::operand_offset(major, fields.swizzle, 8, fields.leading,
                                                 fields.stride, mn_byte, k_byte);
    const uint32_t address = tile::swizzled(fields.swizzle, fields.start + offset);
    read_shared(agent, address_in(agent, block, address), chunk, bytes, site);
  };
  const int per_chunk = storage.per_chunk;
  if (major == Major::k) {
    for (int r = 0; r < rows; ++r) {
      for (int k = 0; k < to.k; k += per_chunk) {
        fetch(static_cast<uint32_t>(r), static_cast<uint32_t>(k / per_chunk * 16), 16);
        uint8_t* codes = to.row(first + r) + static_cast<size_t>(k) * code;
        if (storage.bits >= 8) {
          std::memcpy(codes, chunk, 16);
        } else {
          for (int i = 0; i < per_chunk; ++i) take(chunk, i, storage, codes + i);
        }
      }
    }
  } else {
    for (int k = 0; k < to.k; ++k) {
      for (int r = 0; r < rows; r += per_chunk) {
        const int count = rows - r < per_chunk ? rows - r : per_chunk;
        fetch(static_cast<uint32_t>(r / per_chunk * 16), static_cast<uint32_t>(k),
              static_cast<uint32_t>(count * storage.bits / 8));
        for (int i = 0; i < count; ++i) {
          take(chunk, i, storage, to.row(first + r + i) + static_cast<size_t>(k) * code);
        }
      }
    }
  }
  count_async_shared(agent, static_cast<uint64_t>(rows) * 32);
}

void gather_scales(Agent& agent, Block& block, uint32_t address, int rows, int blocks, int id,
                   uint32_t windows, const char* operand, uint8_t* to, const Site& site) {
  const auto columns = static_cast<uint32_t>((rows + 31) / 32);
  uint32_t cells[16];
  bool first_window = true;
  for (uint32_t window = 0; window < 4; ++window) {
    if ((windows >> window & 1) == 0) continue;
    for (int lane = 0; lane < 32 && lane < rows; ++lane) {
      const uint32_t at = address + ((window * 32 + static_cast<uint32_t>(lane)) << 16);
      read_tensor(agent, block, at, columns, cells, site);
      for (int row = lane; row < rows; row += 32) {
        for (int j = 0; j < blocks; ++j) {
          const auto scale = static_cast<uint8_t>(cells[row / 32] >> 8 * (id + j));
          uint8_t& kept = to[row * blocks + j];
          if (first_window) {
            kept = scale;
          } else if (kept != scale) {
            report(
                agent, Level::error, "tcgen05.scale_windows", site, "tcgen05.mma",
                concat("the scales of ", operand, " differ between windows of 32 lanes: row ", row,
                       " has ", int{kept}, " in the first and ", int{scale}, " in window ", window),
                "copy scales to every window: tcgen05.cp.32x128b.warpx4");
            return;
          }
        }
      }
    }
    first_window = false;
  }
}

}  // namespace halftone::sim

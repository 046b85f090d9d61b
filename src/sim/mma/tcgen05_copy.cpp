// tcgen05.cp, ld, st: bytes between shared memory, tensor memory and registers.
#include <array>
#include <cstring>
#include <vector>

#include "base/message.h"
#include "sim/memory/memory.h"
#include "sim/mma/tcgen05.h"
#include "sim/sim.h"

namespace halftone::sim {

using tile::TensorCopy;
using tile::TensorShape;

namespace {

// 16 elements of `bits` bits, packed from the lowest byte on, to a byte each.
void spread(uint8_t (&chunk)[16], uint32_t bits) {
  uint8_t spread_out[16];
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t bit = i * bits;
    const uint32_t next = bit / 8 + 1 < 16 ? bit / 8 + 1 : 15;
    const uint32_t pair = uint32_t{chunk[bit / 8]} | uint32_t{chunk[next]} << 8;
    spread_out[i] = static_cast<uint8_t>(pair >> bit % 8 & ((1u << bits) - 1));
  }
  std::memcpy(chunk, spread_out, 16);
}

void copy_lines(Agent& agent, Block& block, TensorCopy shape, uint32_t unpack_bits,
                uint32_t destination, const tile::OperandFields& source, const Site& site) {
  const int line_bytes = tile::tensor_copy_line_bytes(shape);
  std::array<uint32_t, 8> cells[128];
  const uint32_t rank = &block == agent.block ? 0 : (block.rank + 1) << 24;
  for (int line = 0; line < tile::tensor_copy_lines(shape); ++line) {
    for (int byte = 0; byte < line_bytes; byte += 16) {
      const uint32_t offset =
          tile::operand_offset(tile::Major::k, source.swizzle, 8, source.leading, source.stride,
                               static_cast<uint32_t>(line), static_cast<uint32_t>(byte));
      uint8_t chunk[16];
      read_shared(agent, rank | tile::swizzled(source.swizzle, source.start + offset), chunk, 16,
                  site);
      if (unpack_bits != 0) spread(chunk, unpack_bits);
      std::memcpy(cells[line].data() + byte / 4, chunk, 16);
    }
  }
  for (int lane = 0; lane < 128; ++lane) {
    const int line = tile::tensor_copy_line(shape, lane);
    if (line < 0) continue;
    write_tensor(agent, block, destination + (static_cast<uint32_t>(lane) << 16),
                 static_cast<uint32_t>(line_bytes / 4), cells[line].data(), site);
  }
  count_async_shared(agent, static_cast<uint64_t>(tile::tensor_copy_lines(shape) * line_bytes));
}

// The cells that one ld or st of a warp moves: rows of them, in one run of columns, for 16x32bx2 in
// two (lanes 0 to 15 and 16 to 31 of the warp).
class Cells {
 public:
  explicit Cells(const TensorRegisters& r)
      : r_(r),
        rows_(tile::tensor_shape_lanes(r.shape)),
        columns_(tile::tensor_shape_columns(r.shape, r.num) * (r.packed ? 2 : 1)),
        runs_(r.shape == TensorShape::s16x32bx2 ? 2 : 1),
        cells_(static_cast<size_t>(runs_ * rows_ * columns_)) {}

  // visit(address, columns, cells) for each run of each row.
  template <class Visit>
  void for_each_run(uint32_t address, Visit visit) {
    for (int run = 0; run < runs_; ++run) {
      for (int row = 0; row < rows_; ++row) {
        visit(address + (static_cast<uint32_t>(row) << 16) + static_cast<uint32_t>(run * r_.split),
              static_cast<uint32_t>(columns_),
              &cells_[static_cast<size_t>((run * rows_ + row) * columns_)]);
      }
    }
  }
  // The cell of a lane's register; where two are packed, the first of them.
  uint32_t* at(int lane, int reg) {
    const tile::Cell cell = tile::tensor_shape_cell(r_.shape, lane, reg, 0);
    const int run = runs_ == 2 ? lane / 16 : 0;
    const int column = r_.packed ? 2 * cell.col : cell.col;
    return &cells_[static_cast<size_t>((run * rows_ + cell.lane) * columns_ + column)];
  }

 private:
  const TensorRegisters r_;
  const int rows_, columns_, runs_;
  std::vector<uint32_t> cells_;
};

int register_count(const TensorRegisters& r) {
  return tile::tensor_shape_registers(r.shape, r.num);
}

void load(Agent& agent, Block& block, const TensorRegisters& r, uint32_t address,
          const Site& site) {
  Cells cells(r);
  cells.for_each_run(address, [&](uint32_t at, uint32_t columns, uint32_t* to) {
    read_tensor(agent, block, at, columns, to, site);
  });
  for (int lane = 0; lane < 32; ++lane) {
    auto* to = in_flight<uint32_t>(agent, static_cast<uint32_t>(lane));
    for (int reg = 0; reg < register_count(r); ++reg) {
      const uint32_t* from = cells.at(lane, reg);
      to[reg] = r.packed ? (from[0] & 0xffff) | from[1] << 16 : from[0];
    }
  }
}

void store(Agent& agent, Block& block, const TensorRegisters& r, uint32_t address,
           const Site& site) {
  Cells cells(r);
  for (int lane = 0; lane < 32; ++lane) {
    const auto* from = in_flight<uint32_t>(agent, static_cast<uint32_t>(lane));
    for (int reg = 0; reg < register_count(r); ++reg) {
      uint32_t* to = cells.at(lane, reg);
      to[0] = r.packed ? from[reg] & 0xffff : from[reg];
      if (r.packed) to[1] = from[reg] >> 16;
    }
  }
  cells.for_each_run(address, [&](uint32_t at, uint32_t columns, const uint32_t* from) {
    if (!r.packed) return write_tensor(agent, block, at, columns, from, site);
    for (uint32_t i = 0; i < columns; ++i) {  // upper halves are not the instruction's
      write_tensor_bytes(agent, block, at + i, from[i], 3, site);
    }
  });
}

void check_address(const TensorRegisters& r, uint32_t address, const char* name, const Site& site) {
  const uint32_t lane = address >> 16 & 31;
  const bool half = tile::tensor_shape_lanes(r.shape) == 16;
  if (lane != 0 && !(half && lane == 16)) {
    fatal(self(), "tcgen05.address", site, name,
          concat("the address names lane ", address >> 16, "; this shape starts at lane 0",
                 half ? " or 16" : "", " of the warp's 32"));
  }
}

struct Operands {
  uint32_t* registers;
};

}  // namespace

void tcgen05_cp(uint32_t cta_group, TensorCopy shape, uint32_t unpack_bits, uint32_t destination,
                tile::Tcgen05Descriptor source, const Site& site) {
  Thread& me = self();
  const char* name = "tcgen05.cp";
  const tile::OperandFields fields = source.decode();
  if (!source.valid() || !fields.valid() || !fields.line_aligned()) {
    fatal(me, "tcgen05.descriptor", site, name,
          concat("source descriptor 0x", std::hex, source.bits,
                 ": a start or stride, the base offset, the swizzle's alignment or a fixed bit is "
                 "not as tcgen05.cp needs it"));
  }
  if (fields.swizzle == tile::Swizzle::b128_atom32) {
    fatal(me, "tcgen05.unverified", site, name,
          "lines in swizzle 128 with 32-byte atoms are not verified");
  }
  if (destination >> 16 != 0) {
    fatal(me, "tcgen05.unverified", site, name,
          concat("destinations that start at lane ", destination >> 16,
                 " are not verified: lane 0 is"));
  }
  if (cta_group == 2 && (me.block->rank % 2 != 0 || me.block->rank + 1 >= cluster_size())) {
    fatal(me, "tcgen05.pair", site, name,
          concat("block ", me.block->rank, " of a cluster of ", cluster_size(),
                 " issued it: the one of even rank leads a pair"));
  }
  count_instruction(name);
  AsyncOperation work(Engine::tcgen05_cp, name);
  work.effect = [=, block = me.block](Agent& agent) {
    for (uint32_t cta = 0; cta < cta_group; ++cta) {
      Block& at = cluster_of(agent).blocks[block->rank + cta];
      copy_lines(agent, at, shape, unpack_bits, destination, fields, site);
    }
  };
  issue(me, std::move(work), site);
}

void tcgen05_ld(const TensorRegisters& r, uint32_t address, uint32_t* registers, const Site& site) {
  check_address(r, address, "tcgen05.ld", site);
  Operands mine{registers};
  const auto model = [&](const Lanes<Operands>& lanes) {
    Thread& me = self();
    if (!check_tensor_window(me, address, site)) return;
    AsyncOperation work(Engine::tcgen05_ld, "tcgen05.ld");
    const auto bytes = static_cast<uint32_t>(register_count(r)) * 4;
    for (const uint32_t lane : lanes) {
      work.writes_registers(me.warp->thread(lane), lanes[lane].registers, bytes);
    }
    work.effect = [r, address, site, block = me.block](Agent& agent) {
      load(agent, *block, r, address, site);
    };
    issue(*me.warp, std::move(work), site);
  };
  warp_collective("tcgen05.ld", kFullMask, mine, model, site, {{{"address", address}}});
}

void tcgen05_st(const TensorRegisters& r, uint32_t address, const uint32_t* registers,
                const Site& site) {
  check_address(r, address, "tcgen05.st", site);
  Operands mine{const_cast<uint32_t*>(registers)};
  const auto model = [&](const Lanes<Operands>& lanes) {
    Thread& me = self();
    if (!check_tensor_window(me, address, site)) return;
    AsyncOperation work(Engine::tcgen05_st, "tcgen05.st");
    const auto bytes = static_cast<uint32_t>(register_count(r)) * 4;
    for (const uint32_t lane : lanes) {
      work.reads_registers(me.warp->thread(lane), lanes[lane].registers, bytes);
    }
    work.effect = [r, address, site, block = me.block](Agent& agent) {
      store(agent, *block, r, address, site);
    };
    issue(*me.warp, std::move(work), site);
  };
  warp_collective("tcgen05.st", kFullMask, mine, model, site, {{{"address", address}}});
}

void tcgen05_shift_down(const Site& site) {
  fatal(self(), "tcgen05.unverified", site, "tcgen05.shift",
        "which neighbour a row moves to, and whether rows cross windows of 32 lanes, is not "
        "verified");
}

}  // namespace halftone::sim

#include "sim/mma/mma_sync_narrow.h"

#include <array>
#include <cstring>

#include "base/message.h"
#include "sim/memory/memory.h"
#include "sim/numerics/mma.h"
#include "sim/sim.h"
#include "tile/fragment.h"
#include "tile/ldmatrix.h"

namespace halftone::sim {

namespace {

struct Fragments {
  const uint32_t *a, *b;
  const void* c;
  void* d;
  uint32_t a_scales, b_scales;
};

const char* counter_of(const MmaSyncNarrow& op) {
  switch (op.scales) {
    case MmaScales::mxf8f6f4:
      return "mma.sync.mxf8f6f4";
    case MmaScales::mxf4:
      return "mma.sync.mxf4";
    case MmaScales::none:
      return "mma.sync.f8f6f4";
    default:
      return "mma.sync.mxf4nvf4";
  }
}

void run(const MmaSyncNarrow& op, const MmaRule& rule, bool exact, const Lanes<Fragments>& lanes) {
  const int bits = op.a == MmaElement::e2m1 ? 4 : 8, k = tile::mma_k(bits);
  const int per_register = 32 / bits,
            blocks = op.scales == MmaScales::none ? 0 : k / scale_block(op.scales);
  uint8_t a[16 * 64], b[8 * 64], a_scales[16 * 4], b_scales[8 * 4];
  float c32[16 * 8];
  uint16_t c16[16 * 8];
  const bool half = op.accumulator == MmaAccumulator::f16;
  const uint32_t mask = (1u << bits) - 1;
  for (int lane = 0; lane < 32; ++lane) {
    const Fragments& mine = lanes[static_cast<uint32_t>(lane)];
    for (int reg = 0; reg < 4; ++reg) {
      for (int e = 0; e < per_register; ++e) {
        const tile::Element at = tile::mma_a_element({lane, reg, e}, bits);
        a[at.row * k + at.col] = static_cast<uint8_t>(mine.a[reg] >> e * bits & mask);
        if (reg >= 2) continue;
        const tile::Element in_b = tile::mma_b_element({lane, reg, e}, bits);
        b[in_b.col * k + in_b.row] = static_cast<uint8_t>(mine.b[reg] >> e * bits & mask);
      }
    }
    for (int i = 0; i < 4; ++i) {
      const tile::Element at = tile::mma_c_element(lane, i);
      const int place = at.row * 8 + at.col;
      std::memcpy(half ? static_cast<void*>(&c16[place]) : &c32[place],
                  static_cast<const char*>(mine.c) + (half ? 2 : 4) * i, half ? 2 : 4);
    }
  }
  for (int j = 0; j < blocks; ++j) {
    for (int m = 0; m < 16; ++m) {
      const auto lane = static_cast<uint32_t>(tile::mma_scale_a_lane(m, op.a_thread));
      a_scales[m * blocks + j] = static_cast<uint8_t>(lanes[lane].a_scales >> 8 * (op.a_byte + j));
    }
    for (int n = 0; n < 8; ++n) {
      const auto lane = static_cast<uint32_t>(tile::mma_scale_b_lane(n, op.b_thread));
      b_scales[n * blocks + j] = static_cast<uint8_t>(lanes[lane].b_scales >> 8 * (op.b_byte + j));
    }
  }
  void* d = half ? static_cast<void*>(c16) : c32;
  const MmaTile tile{16,
                     8,
                     k,
                     {op.a, a, k, false, blocks != 0 ? a_scales : nullptr, blocks},
                     {op.b, b, k, false, blocks != 0 ? b_scales : nullptr, blocks},
                     d,
                     d,
                     8,
                     1};
  if (exact) {
    mma_exact(rule, tile);
  } else {
    mma_fast(rule, tile);
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const tile::Element at = tile::mma_c_element(lane, i);
      const int place = at.row * 8 + at.col;
      std::memcpy(static_cast<char*>(lanes[static_cast<uint32_t>(lane)].d) + (half ? 2 : 4) * i,
                  half ? static_cast<const void*>(&c16[place]) : &c32[place], half ? 2 : 4);
    }
  }
}

// Which shared row each lane names, and the 16 bytes of each, FP4 and FP6 spread into bytes.
struct Rows {
  uint32_t* registers;
  uint32_t address;
};
using RowBytes = std::array<uint8_t, 16>;

void check_row(uint32_t address, const char* name, const Site& site) {
  if (address % 16 != 0) {
    fatal(self(), "shared.misaligned", site, name,
          concat("row address 0x", std::hex, address, " is not a multiple of 16"));
  }
}

RowBytes load_row(Thread& thread, uint32_t address, int bits, const char* name, const Site& site) {
  check_row(address, name, site);
  RowBytes packed{}, row{};
  // The padding is not read: 8 bytes of FP4 are followed by 8, 12 bytes of FP6 by 4.
  read_shared(thread, address, packed.data(), bits == 8 ? 16 : 8, site);
  if (bits == 6) read_shared(thread, address + 8, packed.data() + 8, 4, site);
  for (int i = 0; i < 16; ++i) {
    const int bit = i * bits;
    const int next = bit / 8 + 1 < 16 ? bit / 8 + 1 : 15;
    const uint32_t pair = uint32_t{packed[static_cast<size_t>(bit / 8)]} |
                          uint32_t{packed[static_cast<size_t>(next)]} << 8;
    row[static_cast<size_t>(i)] = static_cast<uint8_t>(pair >> bit % 8 & ((1u << bits) - 1));
  }
  return row;
}

void count_rows(const uint32_t* rows, int count, const char* name, const Site& site) {
  for (int i = 0; i < count; i += 8) count_shared_rows(rows + i, name, site);
}

// The transposing byte forms have no figure in the public text; their byte order is derived from a
// public library's layouts, which agree with each other. Whoever relies on it is told.
void warn_byte_order(const char* name, const Site& site) {
  report(self(), Level::warning, "ldmatrix.unverified", site, name,
         "the byte order of the transposing 8-bit forms is derived, not verified on silicon");
}

void load(const char* name, tile::MatrixForm form, int bits, int matrices, uint32_t* registers,
          uint32_t row, const Site& site) {
  Rows mine{registers, row};
  warp_collective(
      name, kFullMask, mine,
      [&](const Lanes<Rows>& lanes) {
        Warp& warp = *self().warp;
        const int rows = tile::matrix_rows(form), per_matrix = tile::registers_per_matrix(form);
        RowBytes bytes[32];
        uint32_t addresses[32];
        for (int i = 0; i < matrices * rows; ++i) {
          const auto lane =
              static_cast<uint32_t>(tile::matrix_address_lane(form, i / rows, i % rows));
          addresses[i] = lanes[lane].address;
          bytes[i] = load_row(warp.thread(lane), addresses[i], bits, name, site);
        }
        count_rows(addresses, matrices * rows, name, site);
        for (int lane = 0; lane < 32; ++lane) {
          for (int reg = 0; reg < matrices * per_matrix; ++reg) {
            uint32_t value = 0;
            for (int e = 0; e < 4; ++e) {
              const tile::Element at = tile::matrix_element(form, {lane, reg, e});
              value |=
                  uint32_t{bytes[reg / per_matrix * rows + at.row][static_cast<size_t>(at.col)]}
                  << 8 * e;
            }
            lanes[static_cast<uint32_t>(lane)].registers[reg] = value;
          }
        }
      },
      site);
}

}  // namespace

void mma_sync_narrow(const MmaSyncNarrow& op, void* d, const uint32_t* a, const uint32_t* b,
                     const void* c, uint32_t a_scales, uint32_t b_scales, const Site& site) {
  const auto rule = mma_rule(arch(), MmaUnit::mma_sync, op.a, op.b, op.accumulator, op.scales);
  if (!rule) {
    fatal(self(), "mma.instruction", site, op.name,
          concat("no arithmetic is known for A ", name(op.a), " and B ", name(op.b)));
  }
  Fragments mine{a, b, c, d, a_scales, b_scales};
  warp_collective(
      op.name, kFullMask, mine,
      [&](const Lanes<Fragments>& lanes) {
        count_multiply_adds(counter_of(op), op.a == MmaElement::e2m1 ? 16 * 8 * 64 : 16 * 8 * 32);
        run(op, *rule, launch_of(self()).options.numerics == SimulatorOptions::Numerics::exact,
            lanes);
      },
      site);
}

void ldmatrix_m8n16(int bits, int matrices, uint32_t* registers, uint32_t row, const Site& site) {
  load("ldmatrix.m8n16", bits == 4 ? tile::MatrixForm::m8n16_b4 : tile::MatrixForm::m8n16_b6, bits,
       matrices, registers, row, site);
}

void ldmatrix_m16n16_trans(int bits, int matrices, uint32_t* registers, uint32_t row,
                           const Site& site) {
  warn_byte_order("ldmatrix.m16n16.trans", site);
  load("ldmatrix.m16n16.trans", tile::MatrixForm::m16n16_b8_trans, bits, matrices, registers, row,
       site);
}

// Byte j of lane t's register: stored row 2 (t % 4) + j % 2, byte t / 4 + 8 (j / 2) of it.
void stmatrix_m16n8_trans(int matrices, const uint32_t* registers, uint32_t row, const Site& site) {
  const char* name = "stmatrix.m16n8.trans";
  warn_byte_order(name, site);
  Rows mine{const_cast<uint32_t*>(registers), row};
  warp_collective(
      name, kFullMask, mine,
      [&](const Lanes<Rows>& lanes) {
        Warp& warp = *self().warp;
        uint32_t addresses[32];
        for (int matrix = 0; matrix < matrices; ++matrix) {
          RowBytes rows[8];
          for (int lane = 0; lane < 32; ++lane) {
            const uint32_t value = lanes[static_cast<uint32_t>(lane)].registers[matrix];
            for (int j = 0; j < 4; ++j) {
              rows[2 * (lane % 4) + j % 2][static_cast<size_t>(lane / 4 + 8 * (j / 2))] =
                  static_cast<uint8_t>(value >> 8 * j);
            }
          }
          for (int i = 0; i < 8; ++i) {
            const auto lane = static_cast<uint32_t>(8 * matrix + i);
            const uint32_t address = addresses[lane] = lanes[lane].address;
            check_row(address, name, site);
            write_shared(warp.thread(lane), address, rows[i].data(), 16, site);
          }
        }
        count_rows(addresses, 8 * matrices, name, site);
      },
      site);
}

}  // namespace halftone::sim

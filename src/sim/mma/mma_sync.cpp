#include "sim/mma/mma_sync.h"

#include <cstring>
#include <string>

#include "sim/memory/memory.h"
#include "sim/numerics/mma.h"
#include "sim/sim.h"
#include "tile/fragment.h"
#include "tile/ldmatrix.h"

namespace halftone::sim {
namespace {

constexpr int kRows = 16, kColumns = 8, kLargestK = 64;

// The element in `bits` bits of a register, as the numerics take it.
uint32_t element_of(uint32_t reg, int element, int bits, MmaElement type) {
  const uint32_t code = bits == 32 ? reg : reg >> element * bits & ((1u << bits) - 1);
  const bool negative = bits == 4 && type == MmaElement::s8 && (code & 8) != 0;
  return negative ? code | 0xf0 : code;
}

struct Fragments {
  void* d;
  const uint32_t* a;
  const uint32_t* b;
  const void* c;
};

template <class Code>
void gather(const MmaSync& mma, const Lanes<Fragments>& lanes, Code* a, Code* b) {
  const int count = tile::elements_per_register(mma.element_bits);
  const int registers = kRows * mma.k / (32 * count);
  for (int lane = 0; lane < 32; ++lane) {
    const Fragments& mine = lanes[static_cast<uint32_t>(lane)];
    for (int reg = 0; reg < registers; ++reg) {
      for (int i = 0; i < count; ++i) {
        const tile::Element e = tile::mma_a_element({lane, reg, i}, mma.element_bits);
        a[e.row * mma.k + e.col] =
            static_cast<Code>(element_of(mine.a[reg], i, mma.element_bits, mma.a));
      }
    }
    for (int reg = 0; reg < registers / 2; ++reg) {
      for (int i = 0; i < count; ++i) {
        const tile::Element e = tile::mma_b_element({lane, reg, i}, mma.element_bits);
        b[e.col * mma.k + e.row] =
            static_cast<Code>(element_of(mine.b[reg], i, mma.element_bits, mma.b));
      }
    }
  }
}

// Values of the accumulator, f16 in halves of registers.
template <class Value>
void run(const MmaSync& mma, const MmaRule& rule, MmaTile tile, const Lanes<Fragments>& lanes) {
  Value values[kRows * kColumns];
  const auto each = [&](auto visit) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const tile::Element e = tile::mma_c_element(lane, i);
        visit(lanes[static_cast<uint32_t>(lane)], i, values[e.row * kColumns + e.col]);
      }
    }
  };
  each([](const Fragments& f, int i, Value& value) {
    std::memcpy(&value, static_cast<const uint8_t*>(f.c) + static_cast<size_t>(i) * sizeof(Value),
                sizeof(Value));
  });
  tile.c = values;
  tile.d = values;
  tile.row_stride = kColumns;
  tile.column_stride = 1;
  tile.saturate = mma.saturate;
  sim::mma(launch_of(self()).options.numerics, rule, tile);
  each([](const Fragments& f, int i, const Value& value) {
    std::memcpy(static_cast<uint8_t*>(f.d) + static_cast<size_t>(i) * sizeof(Value), &value,
                sizeof(Value));
  });
}

template <class Code>
void run_codes(const MmaSync& mma, const MmaRule& rule, const Lanes<Fragments>& lanes) {
  Code a[kRows * kLargestK], b[kColumns * kLargestK];
  gather(mma, lanes, a, b);
  MmaTile tile{};
  tile.m = kRows;
  tile.n = kColumns;
  tile.k = mma.k;
  tile.a = {mma.a, a, mma.k};
  tile.b = {mma.b, b, mma.k};
  switch (mma.accumulator) {
    case MmaAccumulator::f32:
      return run<float>(mma, rule, tile, lanes);
    case MmaAccumulator::f16:
      return run<uint16_t>(mma, rule, tile, lanes);
    case MmaAccumulator::s32:
      return run<int32_t>(mma, rule, tile, lanes);
  }
}

}  // namespace

void mma_sync(const MmaSync& mma, void* d, const uint32_t* a, const uint32_t* b, const void* c,
              const Site& site) {
  const auto rule = mma_rule(arch(), MmaUnit::mma_sync, mma.a, mma.b, mma.accumulator);
  if (!rule) return require_feature(false, mma.name, site);
  Fragments mine{d, a, b, c};
  warp_collective(
      mma.name, kFullMask, mine,
      [&](const Lanes<Fragments>& lanes) {
        count_multiply_adds(mma.kind, uint64_t{kRows} * kColumns * static_cast<uint64_t>(mma.k));
        switch (code_bytes(mma.a)) {
          case 4:
            return run_codes<uint32_t>(mma, *rule, lanes);
          case 2:
            return run_codes<uint16_t>(mma, *rule, lanes);
          default:
            return run_codes<uint8_t>(mma, *rule, lanes);
        }
      },
      site);
}

namespace {

struct MatrixAccess {
  uint32_t row;
  uint32_t* loaded;
  const uint32_t* stored;
};

// visit(matrix, row of it, the row's 8 elements) for the rows that the lanes name.
template <class Visit>
void each_row(const char* name, int matrices, const Lanes<MatrixAccess>& lanes, const Site& site,
              Visit visit) {
  for (int matrix = 0; matrix < matrices; ++matrix) {
    uint32_t rows[8];
    for (uint32_t i = 0; i < 8; ++i) {
      rows[i] = lanes[static_cast<uint32_t>(8 * matrix) + i].row;
    }
    count_shared_rows(rows, name, site);
    for (int i = 0; i < 8; ++i) visit(matrix, i, rows[i]);
  }
}

// Which lane's register, and which half of it, holds element (row, column) of a matrix.
struct Place {
  uint8_t lane, half;
};
struct Places {
  Place at[8][8];
};
constexpr Places places(tile::MatrixForm form) {
  Places places{};
  for (int lane = 0; lane < 32; ++lane) {
    for (int half = 0; half < 2; ++half) {
      const tile::Element e = tile::matrix_element(form, {lane, 0, half});
      places.at[e.row][e.col] = {static_cast<uint8_t>(lane), static_cast<uint8_t>(half)};
    }
  }
  return places;
}
constexpr Places kPlaces[] = {places(tile::MatrixForm::m8n8_b16),
                              places(tile::MatrixForm::m8n8_b16_trans)};

}  // namespace

void ldmatrix(int matrices, bool trans, uint32_t* registers, uint32_t row, const Site& site) {
  const char* name = matrices == 1 ? "ldmatrix.x1" : matrices == 2 ? "ldmatrix.x2" : "ldmatrix.x4";
  MatrixAccess mine{row, registers, nullptr};
  warp_collective(
      name, kFullMask, mine,
      [&](const Lanes<MatrixAccess>& lanes) {
        Warp& warp = *self().warp;
        each_row(name, matrices, lanes, site, [&](int matrix, int i, uint32_t address) {
          uint16_t elements[8];
          Thread& reader = warp.thread(static_cast<uint32_t>(8 * matrix + i));
          read_shared(reader, address, elements, sizeof elements, site);
          for (int column = 0; column < 8; ++column) {
            const Place place = kPlaces[trans].at[i][column];
            uint32_t& reg = lanes[place.lane].loaded[matrix];
            const uint32_t kept = place.half == 0 ? reg & 0xffff0000u : reg & 0xffffu;
            reg = kept | uint32_t{elements[column]} << 16 * place.half;
          }
        });
      },
      site);
}

void stmatrix(int matrices, bool trans, const uint32_t* registers, uint32_t row, const Site& site) {
  const char* name = matrices == 1 ? "stmatrix.x1" : matrices == 2 ? "stmatrix.x2" : "stmatrix.x4";
  MatrixAccess mine{row, nullptr, registers};
  warp_collective(
      name, kFullMask, mine,
      [&](const Lanes<MatrixAccess>& lanes) {
        Warp& warp = *self().warp;
        each_row(name, matrices, lanes, site, [&](int matrix, int i, uint32_t address) {
          uint16_t elements[8] = {};
          for (int column = 0; column < 8; ++column) {
            const Place place = kPlaces[trans].at[i][column];
            elements[column] =
                static_cast<uint16_t>(lanes[place.lane].stored[matrix] >> 16 * place.half & 0xffff);
          }
          Thread& writer = warp.thread(static_cast<uint32_t>(8 * matrix + i));
          write_shared(writer, address, elements, sizeof elements, site);
        });
      },
      site);
}

}  // namespace halftone::sim

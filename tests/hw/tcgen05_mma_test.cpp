// tcgen05.mma: every kind, operand placement and accumulator layout, against FP64.
#include "hw/tcgen05_product.h"

namespace halftone::test {
namespace {

// A product and how it is asked for.
struct Case {
  Tcgen05Instruction instruction;
  Swizzle a_swizzle = Swizzle::b128, b_swizzle = Swizzle::b128;
  int steps = 2;  // instructions along K
  bool a_in_tensor = false;
  bool accumulate = false;  // onto a D that tensor memory holds already
  bool scale_d = false;     // the first step counts 1/8 of it
  bool one_hot = false;     // a row of A picks one of B's elements: D must be it, to the bit
  uint32_t disabled[8] = {};
};

template <Tcgen05Kind kind, hw::CtaGroup group>
void issue_steps(const Case& c, const Stored& a, const Stored& b, uint32_t a_base, uint32_t b_base,
                 hw::TensorAddress base, hw::TensorAddress a_tensor) {
  const int k = tile::tcgen05_k(kind);
  const uint32_t bits = c.instruction.encode();
  const auto a_all = tile::Tcgen05Descriptor::of(a.tile, a_base);
  const auto b_all = tile::Tcgen05Descriptor::of(b.tile, b_base);
  hw::DisabledLanes<group> lanes;
  bool masked = false;
  for (int i = 0; i < 4 * static_cast<int>(group); ++i) {
    lanes.bits[i] = c.disabled[i];
    masked |= c.disabled[i] != 0;
  }
  for (int step = 0; step < c.steps; ++step) {
    const auto at = static_cast<uint32_t>(step * k);
    const auto a_step = a_all.advanced(a.tile.advance(0, at));
    const auto b_step = b_all.advanced(b.tile.advance(0, at));
    const bool accumulate = step > 0 || c.accumulate;
    const auto a_cells = a_tensor.plus(0, static_cast<uint32_t>(step) * 8);
    if (c.instruction.weight_stationary) {
      if constexpr (group == hw::CtaGroup::one) {
        if (c.a_in_tensor) {
          hw::tcgen05_mma_ws<kind>(base, a_cells, b_step, bits, accumulate);
        } else {
          hw::tcgen05_mma_ws<kind, 1, hw::Collector::fill>(base, a_step, b_step, bits, accumulate);
        }
      }
    } else if (c.scale_d && step == 0) {
      if constexpr (kind <= Tcgen05Kind::tf32) {
        hw::tcgen05_mma_scale_d<kind, group, 3>(base, a_step, b_step, bits, accumulate);
      }
    } else if (masked) {
      hw::tcgen05_mma_masked<kind, group>(base, a_step, b_step, bits, lanes, accumulate);
    } else if (c.a_in_tensor) {
      hw::tcgen05_mma<kind, group>(base, a_cells, b_step, bits, accumulate);
    } else {
      hw::tcgen05_mma<kind, group, hw::Collector::lastuse>(base, a_step, b_step, bits, accumulate);
    }
  }
}

double d_value(Tcgen05Result type, uint32_t cell) {
  if (type == Tcgen05Result::s32) return static_cast<int32_t>(cell);
  if (type == Tcgen05Result::f16) return decode_f16(static_cast<uint16_t>(cell));
  return std::bit_cast<float>(cell);
}
uint32_t d_cell(Tcgen05Result type, double value) {
  if (type == Tcgen05Result::s32) return static_cast<uint32_t>(static_cast<int32_t>(value));
  if (type == Tcgen05Result::f16) return encode_f16(static_cast<float>(value));
  return std::bit_cast<uint32_t>(static_cast<float>(value));
}

// The largest error in units of the bound, over all of D. With `shuffled`, B's rows n and n ^ 1
// have changed places in the reference: the error must then be far above 1.
template <Tcgen05Kind kind, hw::CtaGroup group>
double check(const Case& c, uint32_t seed, bool shuffled = false) {
  const Tcgen05Instruction& i = c.instruction;
  EXPECT_EQ(i.broken_rule(), nullptr) << i.broken_rule();
  std::mt19937 random(seed);
  const int k = tile::tcgen05_k(kind) * c.steps, blocks = i.ctas, rows = i.m / blocks;
  Operand a = random_operand(i.a, i.m, k, random), b = random_operand(i.b, i.n, k, random);
  for (uint32_t& code : a.codes) {  // FP16 sums must stay below 65504
    if (i.d == Tcgen05Result::f16) {
      code = (code & 0x83ff) | ((7 + code / 1024 % 8) << 10);
    }
  }
  for (int m = 0; c.one_hot && m < i.m; ++m) {
    for (int at = 0; at < k; ++at) a.at(m, at) = at == (m * 7 + 3) % k ? 0x3f80 : 0;
  }
  const Stored a_stored = stored(kind, i.a, i.a_major, c.a_swizzle, rows, k);
  const Stored b_stored = stored(kind, i.b, i.b_major, c.b_swizzle, i.n / blocks, k);
  EXPECT_TRUE(a_stored.tile.valid() && b_stored.tile.valid());
  const uint32_t a_base = kData, b_base = (kData + a_stored.tile.bytes() + 1023) / 1024 * 1024;
  std::vector<std::vector<uint8_t>> shared(static_cast<size_t>(blocks));
  // A in tensor memory lies behind D: columns 256 on.
  const auto layout = tile::accumulator_of(i.m, i.ctas, i.weight_stationary);
  const int d_columns = tile::accumulator_columns(layout, i.n);
  const int a_columns = c.a_in_tensor ? 8 * c.steps : 0;
  // M 64 leaves half of the lanes alone: they need a value before they are read back.
  const bool holes = layout == tile::Accumulator::rows64;
  Cells tensor(blocks, c.a_in_tensor || c.accumulate || holes ? 256 + a_columns : 0),
      cells(blocks, d_columns);
  std::vector<double> c_values(static_cast<size_t>(i.m * i.n), 0.0);
  for (int block = 0; block < blocks; ++block) {
    auto& image = shared[static_cast<size_t>(block)];
    image.resize((b_base + b_stored.tile.bytes() + 15) / 16 * 16);
    lay_out(a_stored, a, block * rows, a_base, image);
    lay_out(b_stored, b, block * (i.n / blocks), b_base, image);
    for (int lane = 0; lane < 128 && tensor.columns != 0; ++lane) {
      const tile::Cell e = tile::accumulator_element(layout, {lane, 0}, i.n);
      for (int column = 0; c.accumulate && e.lane >= 0 && column < d_columns; ++column) {
        const int m = block * rows + e.lane, n = e.col + column;
        const double value = d_value(i.d, d_cell(i.d, (m * 37 + n * 11) % 101 / 4.0 - 12));
        c_values[static_cast<size_t>(m * i.n + n)] = c.scale_d ? value / 8 : value;
        tensor.at(block, lane, column) = d_cell(i.d, value);
      }
      // Two blocks of 64 rows: the upper windows hold the rows again.
      const int row = layout == tile::Accumulator::rows64 ? e.lane : lane % rows;
      for (int at = 0; c.a_in_tensor && row >= 0 && at < k; ++at) {
        const auto [cell, element] = tile::operand_cell(row, at, bits_of(i.a));
        tensor.at(block, lane, 256 + cell.col) |= a.at(block * rows + row, at)
                                                  << element * bits_of(i.a);
      }
    }
  }
  ProductOptions options{.blocks = blocks};
  const SimulatorReport report =
      run_product<group>(options, shared, tensor, cells, [&](hw::TensorAddress base) {
        issue_steps<kind, group>(c, a_stored, b_stored, a_base, b_base, base, base.plus(0, 256));
      });
  EXPECT_TRUE(report.clean()) << to_string(report, false);
  double worst = 0;
  for (int m = 0; m < i.m; ++m) {
    for (int n = 0; n < i.n; ++n) {
      const int in_block = m % rows;
      const tile::Cell at = tile::accumulator_cell(layout, in_block, n, i.n);
      const double c_value = c_values[static_cast<size_t>(m * i.n + n)];
      double exact = c_value, size = std::fabs(c_value);
      const int from = shuffled ? n ^ 1 : n;
      for (int at_k = 0; at_k < k; ++at_k) {
        double term = a.value(m, at_k) * b.value(from, at_k);
        if (i.negate_a != i.negate_b) term = -term;
        exact += term;
        size += std::fabs(term);
      }
      const bool off = c.disabled[m / rows * 4 + at.lane / 32] >> at.lane % 32 & 1;
      if (off) exact = c_value;
      const double got = d_value(i.d, cells.at(m / rows, at.lane, at.col));
      // Each step cuts k + 1 terms off at 2^-25 of the largest, and its sum at 2^-23 (FP16: rounds
      // at 2^-11).
      const double step_k = tile::tcgen05_k(kind);
      const double bound =
          i.d == Tcgen05Result::s32 || off || c.one_hot
              ? 0
              : c.steps * size *
                    ((step_k + 1) * 0x1p-25 + (i.d == Tcgen05Result::f16 ? 0x1p-11 : 0x1p-23));
      const double error = std::fabs(got - exact);
      const double units = error == 0 ? 0 : bound == 0 ? 1e9 : error / bound;
      EXPECT_TRUE(shuffled || units <= 1)
          << "D(" << m << ", " << n << ") is " << got << ", not " << exact;
      if (!(units <= worst)) worst = units;
      if (!shuffled && !(units <= 1)) return worst;
    }
  }
  return worst;
}

Tcgen05Instruction make(Tcgen05Kind kind, Tcgen05Type a, Tcgen05Type b, int m, int n) {
  Tcgen05Instruction i;
  i.kind = kind, i.a = a, i.b = b, i.m = m, i.n = n;
  if (kind == Tcgen05Kind::i8) i.d = Tcgen05Result::s32;
  return i;
}

TEST(Tcgen05Mma, SwizzlesAndMajors) {
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    for (const Major major : {Major::k, Major::mn}) {
      Case c{make(Tcgen05Kind::f16, Tcgen05Type::bf16, Tcgen05Type::bf16, 128, 64)};
      c.a_swizzle = c.b_swizzle = swizzle;
      c.instruction.a_major = c.instruction.b_major = major;
      c.steps = 4;
      check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 1);
      c.one_hot = true;
      check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 1);
    }
  }
}

TEST(Tcgen05Mma, KindsAndTypes) {
  Case c{make(Tcgen05Kind::f16, Tcgen05Type::f16, Tcgen05Type::f16, 128, 32)};
  c.steps = 4;
  c.instruction.negate_a = true;
  check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 2);
  c.instruction.d = Tcgen05Result::f16;
  check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 3);
  c.instruction = make(Tcgen05Kind::tf32, Tcgen05Type::tf32, Tcgen05Type::tf32, 128, 32);
  check<Tcgen05Kind::tf32, hw::CtaGroup::one>(c, 4);
  c.instruction.a_major = Major::mn;
  c.a_swizzle = Swizzle::b128_atom32;
  check<Tcgen05Kind::tf32, hw::CtaGroup::one>(c, 5);
  c.a_swizzle = Swizzle::b128;
  for (const auto a : {Tcgen05Type::u8, Tcgen05Type::s8}) {
    for (const auto b : {Tcgen05Type::u8, Tcgen05Type::s8}) {
      c.instruction = make(Tcgen05Kind::i8, a, b, 128, 32);
      check<Tcgen05Kind::i8, hw::CtaGroup::one>(c, 6);
    }
  }
}

TEST(Tcgen05Mma, EveryPairOfNarrowFloats) {
  constexpr Tcgen05Type kTypes[] = {Tcgen05Type::e4m3, Tcgen05Type::e5m2, Tcgen05Type::e2m3,
                                    Tcgen05Type::e3m2, Tcgen05Type::e2m1};
  for (const auto a : kTypes) {
    for (const auto b : kTypes) {
      Case c{make(Tcgen05Kind::f8f6f4, a, b, 64, 16)};
      c.steps = 4;
      check<Tcgen05Kind::f8f6f4, hw::CtaGroup::one>(c, 7);
    }
  }
}

TEST(Tcgen05Mma, AccumulatorLayouts) {
  const auto bf16 = [](int m, int n) {
    return Case{make(Tcgen05Kind::f16, Tcgen05Type::bf16, Tcgen05Type::bf16, m, n), Swizzle::b64,
                Swizzle::b64};
  };
  for (const int m : {64, 128}) {
    for (const int n : {16, 48, 256}) {
      Case c = bf16(m, n);
      c.accumulate = true;
      check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 8);
    }
  }
  Case narrow = bf16(64, 8);
  check<Tcgen05Kind::f16, hw::CtaGroup::one>(narrow, 8);
  for (const int m : {128, 256}) {
    for (const int n : {32, 256}) {
      Case c = bf16(m, n);
      c.instruction.ctas = 2;
      c.accumulate = n == 32;
      check<Tcgen05Kind::f16, hw::CtaGroup::two>(c, 9);
    }
  }
  for (const int m : {32, 64, 128}) {
    Case c = bf16(m, 64);
    c.instruction.weight_stationary = true;
    c.accumulate = true;
    check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 10);
  }
}

TEST(Tcgen05Mma, AFromTensorMemory) {
  Case c{make(Tcgen05Kind::f16, Tcgen05Type::bf16, Tcgen05Type::bf16, 128, 64)};
  c.a_in_tensor = true;
  c.steps = 4;
  check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 11);
  c.instruction.m = 64;
  check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 12);
  c.instruction.m = 128;
  c.instruction.weight_stationary = true;
  check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 13);
  c.instruction.weight_stationary = false;
  c.instruction.ctas = 2;
  check<Tcgen05Kind::f16, hw::CtaGroup::two>(c, 14);
  c.instruction.m = 256;
  check<Tcgen05Kind::f16, hw::CtaGroup::two>(c, 15);
  c.instruction = make(Tcgen05Kind::f8f6f4, Tcgen05Type::e4m3, Tcgen05Type::e5m2, 128, 64);
  check<Tcgen05Kind::f8f6f4, hw::CtaGroup::one>(c, 16);
  c.instruction = make(Tcgen05Kind::i8, Tcgen05Type::s8, Tcgen05Type::u8, 128, 64);
  check<Tcgen05Kind::i8, hw::CtaGroup::one>(c, 17);
}

TEST(Tcgen05Mma, DisabledLanesKeepTheirValues) {
  Case c{make(Tcgen05Kind::f16, Tcgen05Type::bf16, Tcgen05Type::bf16, 128, 32)};
  c.accumulate = true;
  c.steps = 4;
  c.disabled[0] = 0x80000001, c.disabled[2] = 0xffff, c.disabled[3] = 0xf0f0f0f0;
  check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 18);
  c.instruction.ctas = 2;
  c.instruction.m = 256;
  c.disabled[7] = 0x12345678;
  check<Tcgen05Kind::f16, hw::CtaGroup::two>(c, 19);
}

TEST(Tcgen05Mma, ScalesD) {
  Case c{make(Tcgen05Kind::f16, Tcgen05Type::bf16, Tcgen05Type::bf16, 128, 32)};
  c.accumulate = c.scale_d = true;
  c.steps = 4;
  check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 20);
  c.instruction = make(Tcgen05Kind::tf32, Tcgen05Type::tf32, Tcgen05Type::tf32, 64, 32);
  check<Tcgen05Kind::tf32, hw::CtaGroup::one>(c, 21);
}

TEST(Tcgen05Mma, AWrongRowShows) {
  Case c{make(Tcgen05Kind::f16, Tcgen05Type::bf16, Tcgen05Type::bf16, 128, 64)};
  c.steps = 4;
  EXPECT_GT((check<Tcgen05Kind::f16, hw::CtaGroup::one>(c, 1, true)), 1000.0);
}

}  // namespace
}  // namespace halftone::test

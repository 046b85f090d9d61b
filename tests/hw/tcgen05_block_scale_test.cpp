// Block-scaled tcgen05.mma: scales brought to tensor memory by tcgen05.cp, products against FP64.
#include "hw/tcgen05_product.h"

#include <algorithm>

namespace halftone::test {
namespace {

using hw::ScaleBlock;
using tile::Tcgen05Scale;

struct Case {
  Tcgen05Instruction instruction;
  int block = 32;  // elements of a scale
  int steps = 4;
};

double scale_value(Tcgen05Scale type, uint8_t code) {
  return type == Tcgen05Scale::ue8m0 ? double{decode_ue8m0(code)} : double{decode_e4m3(code)};
}
uint8_t random_scale(Tcgen05Scale type, std::mt19937& random) {
  return static_cast<uint8_t>(type == Tcgen05Scale::ue8m0 ? 117 + random() % 21 : random() % 0x7f);
}

// Scales of `rows` rows from `first` on as the bytes that tcgen05.cp reads: atoms of 128 rows by 4
// blocks; several along the rows, then along K.
void lay_out_atoms(const std::vector<uint8_t>& scales, int blocks, int first, int rows,
                   uint8_t* to) {
  const int down = (rows + 127) / 128;
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < blocks; ++j) {
      const int atom = j / 4 * down + r / 128;
      to[atom * 512 + tile::scale_atom_offset({r % 128, j % 4})] =
          scales[static_cast<size_t>((first + r) * blocks + j)];
    }
  }
}
// M 128 of two blocks: lines 0 to 31 are the scales of the first half of N, 32 to 63 of the second.
void lay_out_halves(const std::vector<uint8_t>& scales, int blocks, int n, uint8_t* to) {
  for (int r = 0; r < n; ++r) {
    for (int j = 0; j < blocks; ++j) {
      const int half = r / (n / 2), in_half = r % (n / 2);
      to[j / 4 * 1024 + (half * 32 + in_half % 32) * 16 + in_half / 32 * 4 + j % 4] =
          scales[static_cast<size_t>(r * blocks + j)];
    }
  }
}

tile::Tcgen05Descriptor lines_at(uint32_t address) {
  return tile::Tcgen05Descriptor::encode({.start = address, .leading = 16, .stride = 128});
}

constexpr uint32_t kScalesA = 256, kScalesB = 320;  // columns

// The largest error in units of its bound: at most 1, unless one of A's scales is `off` by a bit.
template <Tcgen05Kind kind, ScaleBlock block, hw::CtaGroup group>
double worst_error(Case c, uint32_t seed, bool off = false) {
  Tcgen05Instruction& i = c.instruction;
  EXPECT_EQ(i.broken_rule(), nullptr) << i.broken_rule();
  std::mt19937 random(seed);
  const int step_k = tile::tcgen05_k(kind), k = step_k * c.steps, ctas = i.ctas, rows = i.m / ctas;
  const int per_step = step_k / c.block, blocks = k / c.block;
  Operand a = random_operand(i.a, i.m, k, random), b = random_operand(i.b, i.n, k, random);
  std::vector<uint8_t> sa(static_cast<size_t>(i.m * blocks)), sb(static_cast<size_t>(i.n * blocks));
  for (uint8_t& s : sa) s = random_scale(i.scale, random);
  for (uint8_t& s : sb) s = random_scale(i.scale, random);
  const Stored a_stored = stored(kind, i.a, Major::k, Swizzle::b128, rows, k);
  const Stored b_stored = stored(kind, i.b, Major::k, Swizzle::b128, i.n / ctas, k);
  EXPECT_TRUE(a_stored.tile.valid() && b_stored.tile.valid());
  const uint32_t a_base = kData, b_base = a_base + (a_stored.tile.bytes() + 1023) / 1024 * 1024;
  const uint32_t sa_base = b_base + (b_stored.tile.bytes() + 1023) / 1024 * 1024;
  const uint32_t sb_base = sa_base + 8192;
  const auto layout = tile::accumulator_of(i.m, i.ctas);
  const bool halves = layout == tile::Accumulator::split2;
  std::vector<std::vector<uint8_t>> shared(static_cast<size_t>(ctas));
  for (int cta = 0; cta < ctas; ++cta) {
    auto& image = shared[static_cast<size_t>(cta)];
    image.resize(sb_base + 8192);
    lay_out(a_stored, a, cta * rows, a_base, image);
    lay_out(b_stored, b, cta * (i.n / ctas), b_base, image);
    lay_out_atoms(sa, blocks, cta * rows, rows, &image[sa_base]);
    if (halves) {
      lay_out_halves(sb, blocks, i.n, &image[sb_base]);
    } else {
      lay_out_atoms(sb, blocks, 0, i.n, &image[sb_base]);
    }
  }
  Cells nothing(ctas, 0), cells(ctas, tile::accumulator_columns(layout, i.n));
  const int a_atoms = (rows + 127) / 128, b_atoms = halves ? 1 : (i.n + 127) / 128;
  ProductOptions options{.blocks = ctas};
  const auto issue = [&](hw::TensorAddress base) {
    using tile::TensorCopy;
    const auto a_all = tile::Tcgen05Descriptor::of(a_stored.tile, a_base);
    const auto b_all = tile::Tcgen05Descriptor::of(b_stored.tile, b_base);
    for (int step = 0; step < c.steps; ++step) {
      const int first = step * per_step;  // block along K; a cell holds four
      if (first % 4 == 0) {
        for (int atom = 0; atom < a_atoms; ++atom) {
          const auto at = static_cast<uint32_t>(first / 4 * a_atoms + atom);
          hw::tcgen05_cp<TensorCopy::s32x128b_warpx4, group>(
              base.plus(0, kScalesA + 4 * static_cast<uint32_t>(atom)),
              lines_at(sa_base + at * 512));
        }
        for (int atom = 0; atom < b_atoms; ++atom) {
          const auto at = static_cast<uint32_t>(first / 4 * b_atoms + atom);
          const auto to = base.plus(0, kScalesB + 4 * static_cast<uint32_t>(atom));
          if (halves) {
            hw::tcgen05_cp<TensorCopy::s64x128b_01_23, group>(to, lines_at(sb_base + at * 1024));
          } else {
            hw::tcgen05_cp<TensorCopy::s32x128b_warpx4, group>(to, lines_at(sb_base + at * 512));
          }
        }
      }
      Tcgen05Instruction with_id = i;
      with_id.a_scale_id = with_id.b_scale_id = first % 4;
      const uint32_t at = static_cast<uint32_t>(step * step_k);
      hw::tcgen05_mma_block_scale<kind, block, group>(
          base, a_all.advanced(a_stored.tile.advance(0, at)),
          b_all.advanced(b_stored.tile.advance(0, at)), with_id.encode(), base.plus(0, kScalesA),
          base.plus(0, kScalesB), step > 0);
    }
  };
  const SimulatorReport report = run_product<group>(options, shared, nothing, cells, issue);
  EXPECT_TRUE(report.clean()) << to_string(report, false);
  if (off) sa[static_cast<size_t>(i.m / 2 * blocks + blocks - 1)] ^= 1;
  double worst = 0;
  for (int m = 0; m < i.m; ++m) {
    for (int n = 0; n < i.n; ++n) {
      double exact = 0, size = 0;
      for (int at = 0; at < k; ++at) {
        const auto j = static_cast<size_t>(at / c.block), stride = static_cast<size_t>(blocks);
        const double term = a.value(m, at) * b.value(n, at) *
                            scale_value(i.scale, sa[static_cast<size_t>(m) * stride + j]) *
                            scale_value(i.scale, sb[static_cast<size_t>(n) * stride + j]);
        exact += term;
        size += std::fabs(term);
      }
      const tile::Cell at = tile::accumulator_cell(layout, m % rows, n, i.n);
      const double got = std::bit_cast<float>(cells.at(m / rows, at.lane, at.col));
      // Each step cuts step_k + 1 terms off at 2^-25 of the largest and its sum at 2^-23.
      const double bound = c.steps * size * ((step_k + 1) * 0x1p-25 + 0x1p-23);
      const double error = std::fabs(got - exact);
      worst = std::max(worst, error == 0                       ? 0
                              : std::isfinite(got) && size > 0 ? error / bound
                                                               : 1e9);
    }
  }
  return worst;
}

template <Tcgen05Kind kind, ScaleBlock block, hw::CtaGroup group>
void check(const Case& c, uint32_t seed) {
  EXPECT_LE((worst_error<kind, block, group>(c, seed)), 1.0)
      << "M " << c.instruction.m << ", N " << c.instruction.n;
}

Case make(Tcgen05Kind kind, Tcgen05Type a, Tcgen05Type b, int m, int n, int ctas = 1) {
  Case c;
  c.instruction.kind = kind;
  c.instruction.a = a, c.instruction.b = b, c.instruction.m = m, c.instruction.n = n;
  c.instruction.ctas = ctas;
  return c;
}
constexpr auto kOne = hw::CtaGroup::one;
constexpr auto kTwo = hw::CtaGroup::two;

TEST(Tcgen05BlockScale, Mxf8f6f4) {
  constexpr Tcgen05Type kTypes[] = {Tcgen05Type::e4m3, Tcgen05Type::e5m2, Tcgen05Type::e2m3,
                                    Tcgen05Type::e3m2, Tcgen05Type::e2m1};
  for (const auto a : kTypes) {
    for (const auto b : kTypes) {
      check<Tcgen05Kind::mxf8f6f4, ScaleBlock::block32, kOne>(
          make(Tcgen05Kind::mxf8f6f4, a, b, 128, 16), 1);
    }
  }
  const auto e4m3 = Tcgen05Type::e4m3;
  for (const int n : {40, 128, 256}) {
    check<Tcgen05Kind::mxf8f6f4, ScaleBlock::block32, kOne>(
        make(Tcgen05Kind::mxf8f6f4, e4m3, e4m3, 128, n), 2);
  }
  check<Tcgen05Kind::mxf8f6f4, ScaleBlock::block32, kTwo>(
      make(Tcgen05Kind::mxf8f6f4, e4m3, e4m3, 256, 256, 2), 3);
  EXPECT_GT((worst_error<Tcgen05Kind::mxf8f6f4, ScaleBlock::block32, kOne>(
                make(Tcgen05Kind::mxf8f6f4, e4m3, e4m3, 128, 128), 2, true)),
            100.0);
  check<Tcgen05Kind::mxf8f6f4, ScaleBlock::block32, kTwo>(
      make(Tcgen05Kind::mxf8f6f4, e4m3, e4m3, 128, 128, 2), 4);
}

TEST(Tcgen05BlockScale, Mxf4) {
  const auto e2m1 = Tcgen05Type::e2m1;
  for (const int n : {64, 192}) {
    check<Tcgen05Kind::mxf4, ScaleBlock::block32, kOne>(make(Tcgen05Kind::mxf4, e2m1, e2m1, 128, n),
                                                        5);
  }
  check<Tcgen05Kind::mxf4, ScaleBlock::block32, kTwo>(
      make(Tcgen05Kind::mxf4, e2m1, e2m1, 256, 128, 2), 6);
  check<Tcgen05Kind::mxf4nvf4, ScaleBlock::block32, kOne>(
      make(Tcgen05Kind::mxf4nvf4, e2m1, e2m1, 128, 64), 7);
}

TEST(Tcgen05BlockScale, Nvf4) {
  const auto e2m1 = Tcgen05Type::e2m1;
  Case c = make(Tcgen05Kind::mxf4nvf4, e2m1, e2m1, 128, 128);
  c.block = 16;
  c.instruction.scale = Tcgen05Scale::ue4m3;
  check<Tcgen05Kind::mxf4nvf4, ScaleBlock::block16, kOne>(c, 8);
  EXPECT_GT((worst_error<Tcgen05Kind::mxf4nvf4, ScaleBlock::block16, kOne>(c, 8, true)), 100.0);
  c.instruction.m = 256, c.instruction.ctas = 2, c.instruction.n = 256;
  check<Tcgen05Kind::mxf4nvf4, ScaleBlock::block16, kTwo>(c, 9);
  c.instruction.m = 128;
  check<Tcgen05Kind::mxf4nvf4, ScaleBlock::block16, kTwo>(c, 10);
}

}  // namespace
}  // namespace halftone::test

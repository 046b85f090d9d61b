// tcgen05.ld and st of every shape and count, and tcgen05.cp: which cell goes where.
#include "hw/tcgen05_product.h"

namespace halftone::test {
namespace {

using hw::Halves;
using hw::TensorAddress;
using hw::TensorShape;
using tile::TensorCopy;

uint32_t unique(uint32_t lane, uint32_t column) { return 0x10000 * (lane + 1) + 7 * column + 1; }

// Runs `body(base, thread)` by 128 threads with 512 columns that hold unique(lane, column).
template <class Body>
SimulatorReport with_tensor_memory(const Body& body, SimulatorOptions options = {}) {
  options.throws = false;
  Stream stream = simulated(Arch::sm_100a, options, 1);
  run(stream, {.grid = {1}, .block = {128}, .shared_bytes = 128 * 1024}, [&](sim::Thread&) {
    using namespace hw;
    const uint32_t thread = thread_index().x, warp = thread / 32;
    if (warp == 0) tcgen05_alloc<CtaGroup::one>({kAddress}, 512);
    barrier_sync();
    const TensorAddress base{load_shared<uint32_t>({kAddress})};
    for (uint32_t column = 0; column < 512; column += 128) {
      uint32_t values[128];
      for (uint32_t i = 0; i < 128; ++i) values[i] = unique(thread, column + i);
      tcgen05_st<TensorShape::s32x32b, 128>(base.plus(warp * 32, column), values);
      tcgen05_wait_st();
    }
    tcgen05_fence_before_thread_sync();
    barrier_sync();
    tcgen05_fence_after_thread_sync();
    body(base, thread);
    tcgen05_fence_before_thread_sync();
    barrier_sync();
    tcgen05_fence_after_thread_sync();
    if (warp == 0) tcgen05_dealloc<CtaGroup::one>(base, 512);
  });
  return simulator_report(stream);
}

// Lane and column of register r of lane t, written out for each shape: PTX's figures.
struct Place {
  uint32_t lane, column;
};
Place place(TensorShape shape, uint32_t t, uint32_t r, uint32_t split) {
  switch (shape) {
    case TensorShape::s32x32b:
      return {t, r};
    case TensorShape::s16x64b:  // quads of lanes: two rows 8 apart, two columns
      return {t / 4 + (t % 2) * 8, r * 2 + t / 2 % 2};
    case TensorShape::s16x128b:
      return {t / 4 + (r % 2) * 8, r / 2 * 4 + t % 4};
    case TensorShape::s16x256b:
      return {t / 4 + (r / 2 % 2) * 8, r / 4 * 8 + t % 4 * 2 + r % 2};
    case TensorShape::s16x32bx2:
      return {t % 16, r + (t / 16) * split};
  }
  return {};
}

template <TensorShape shape, int num, Halves halves>
void load_and_store(uint32_t half) {
  constexpr int count = tile::tensor_shape_registers(shape, num);
  constexpr bool packed = halves == Halves::packed;
  constexpr int split = shape == TensorShape::s16x32bx2 ? (packed ? 2 : 1) * num + 4 : 0;
  // Columns start at 8; what is stored comes 256 further right.
  if (tile::tensor_shape_columns(shape, num) * (packed ? 2 : 1) + split > 240) return;
  static bool stored[32][256];  // lane of the window, column from 256 on
  std::memset(stored, 0, sizeof stored);
  for (uint32_t t = 0; t < 32; ++t) {
    for (uint32_t j = 0; j < count; ++j) {
      Place p = place(shape, t, j, packed ? 0 : split);
      if (packed) p.column = 2 * p.column + t / 16 * split;
      stored[p.lane + half][8 + p.column] = true;
      if (packed) stored[p.lane + half][9 + p.column] = true;
    }
  }
  const SimulatorReport report = with_tensor_memory([&](TensorAddress base, uint32_t thread) {
    using namespace hw;
    const uint32_t warp = thread / 32, lane = thread % 32;
    const TensorAddress at = base.plus(warp * 32 + half, 8);
    uint32_t r[count];
    tcgen05_ld<shape, num, halves, split>(r, at);
    tcgen05_wait_ld(r);
    for (uint32_t i = 0; i < count; ++i) {
      Place p = place(shape, lane, i, packed ? 0 : split);
      if (packed) p.column = 2 * p.column + lane / 16 * split;
      const uint32_t row = warp * 32 + half + p.lane, column = 8 + p.column;
      const uint32_t expected = packed
                                    ? (unique(row, column) & 0xffff) | unique(row, column + 1) << 16
                                    : unique(row, column);
      ASSERT_EQ(r[i], expected) << "lane " << lane << ", register " << i;
    }
    tcgen05_st<shape, num, halves, split>(at.plus(0, 256), r);
    tcgen05_wait_st();
    // Back by the plain shape: the cells that the registers stand for.
    uint32_t cells[128];
    for (uint32_t first = 0; first < 256; first += 128) {
      tcgen05_ld<TensorShape::s32x32b, 128>(cells, base.plus(warp * 32, 256 + first));
      tcgen05_wait_ld(cells);
      for (uint32_t i = 0; i < 128; ++i) {
        const uint32_t column = first + i;
        const uint32_t was = unique(thread, 256 + column), moved = unique(thread, column);
        const uint32_t expected = !stored[lane][column] ? was
                                  : packed              ? (was & 0xffff0000u) | (moved & 0xffff)
                                                        : moved;
        ASSERT_EQ(cells[i], expected) << "lane " << thread << ", column " << column;
      }
    }
  });
  EXPECT_TRUE(report.clean()) << to_string(report, false);
}

template <TensorShape shape, int num>
void both_ways() {
  if constexpr (tile::valid_num(shape, num)) {
    for (const uint32_t half : {0u, shape == TensorShape::s32x32b ? 0u : 16u}) {
      load_and_store<shape, num, Halves::whole>(half);
      load_and_store<shape, num, Halves::packed>(half);
    }
  }
}
template <TensorShape shape>
void every_count() {
  both_ways<shape, 1>(), both_ways<shape, 2>(), both_ways<shape, 4>(), both_ways<shape, 8>();
  both_ways<shape, 16>(), both_ways<shape, 32>(), both_ways<shape, 64>();
}

TEST(Tcgen05LoadStore, Shape32x32b) { every_count<TensorShape::s32x32b>(); }
TEST(Tcgen05LoadStore, Shape16x64b) { every_count<TensorShape::s16x64b>(); }
TEST(Tcgen05LoadStore, Shape16x128b) { every_count<TensorShape::s16x128b>(); }
TEST(Tcgen05LoadStore, Shape16x256b) { every_count<TensorShape::s16x256b>(); }
TEST(Tcgen05LoadStore, Shape16x32bx2) { every_count<TensorShape::s16x32bx2>(); }

// Byte of shared memory at `address`, before the copy.
uint8_t stored_byte(uint32_t address) { return static_cast<uint8_t>(address * 37 + address / 256); }

// The byte that arrives at (lane, byte of the line); -1 where the cell stays.
template <TensorCopy shape, hw::TensorUnpack unpack = hw::TensorUnpack::none, class Expected>
void copy(tile::Swizzle swizzle, const Expected& expected) {
  constexpr uint32_t kSource = 4096;
  const int columns = tile::tensor_copy_line_bytes(shape) / 4;
  std::vector<std::vector<uint8_t>> shared(1, std::vector<uint8_t>(64 * 1024));
  for (uint32_t at = 0; at < shared[0].size(); ++at) shared[0][at] = stored_byte(at);
  Cells before(1, 8), after(1, 8);
  for (int lane = 0; lane < 128; ++lane) {
    for (int column = 0; column < 8; ++column) before.at(0, lane, column) = 0xabcd0000u;
  }
  const uint32_t span = tile::span(swizzle);
  const auto source = tile::Tcgen05Descriptor::encode(
      {.start = kSource, .leading = 2048, .stride = 8 * span, .swizzle = swizzle});
  const SimulatorReport report = run_product<hw::CtaGroup::one>(
      {}, shared, before, after,
      [&](TensorAddress base) { hw::tcgen05_cp<shape, hw::CtaGroup::one, unpack>(base, source); });
  EXPECT_TRUE(report.clean()) << to_string(report, false);
  for (int lane = 0; lane < 128; ++lane) {
    for (int byte = 0; byte < 4 * columns; ++byte) {
      const int got = static_cast<int>(after.at(0, lane, byte / 4) >> 8 * (byte % 4) & 0xff);
      const int line = expected(lane);
      if (line < 0) {
        ASSERT_EQ(after.at(0, lane, byte / 4), 0xabcd0000u) << "lane " << lane;
        continue;
      }
      // Line l: row l % 8 of group l / 8; the second 16 bytes are `leading` further, or next to the
      // first in a swizzled line.
      const auto l = static_cast<uint32_t>(line), b = static_cast<uint32_t>(byte);
      const auto address = [&](uint32_t in_line) {
        const uint32_t offset = swizzle == tile::Swizzle::none
                                    ? l % 8 * 16 + l / 8 * 128 + in_line / 16 * 2048 + in_line % 16
                                    : l * span + in_line;
        return tile::swizzled(swizzle, kSource + offset);
      };
      int want = stored_byte(address(b));
      if (unpack != hw::TensorUnpack::none) {
        const int bits = static_cast<int>(unpack), bit = static_cast<int>(b % 16) * bits;
        const uint32_t chunk = b / 16 * 16;
        const uint32_t low = stored_byte(address(chunk + static_cast<uint32_t>(bit / 8)));
        const uint32_t high = stored_byte(address(chunk + static_cast<uint32_t>(bit / 8 + 1)));
        want = static_cast<int>((low | high << 8) >> bit % 8 & ((1u << bits) - 1));
      }
      ASSERT_EQ(got, want) << "lane " << lane << ", byte " << byte;
    }
  }
}

TEST(Tcgen05Copy, Shapes) {
  using tile::Swizzle;
  const auto same = [](int lane) { return lane; };
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    copy<TensorCopy::s128x256b>(swizzle, same);
  }
  copy<TensorCopy::s128x128b>(Swizzle::none, same);
  copy<TensorCopy::s64x128b_02_13>(Swizzle::none, [](int lane) { return lane % 64; });
  copy<TensorCopy::s64x128b_01_23>(Swizzle::none,
                                   [](int lane) { return lane < 64 ? lane % 32 : 32 + lane % 32; });
  copy<TensorCopy::s32x128b_warpx4>(Swizzle::none, [](int lane) { return lane % 32; });
  copy<TensorCopy::s4x256b>(Swizzle::none,
                            [](int lane) { return lane % 32 == 0 ? lane / 32 : -1; });
}

TEST(Tcgen05Copy, Unpacks) {
  const auto same = [](int lane) { return lane; };
  copy<TensorCopy::s128x256b, hw::TensorUnpack::b4x16_p64>(tile::Swizzle::none, same);
  copy<TensorCopy::s128x256b, hw::TensorUnpack::b6x16_p32>(tile::Swizzle::b128, same);
}

}  // namespace
}  // namespace halftone::test

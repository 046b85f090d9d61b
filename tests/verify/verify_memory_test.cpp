// Shared memory as instructions see it: fragments, swizzles, tensor copies, bytes of a barrier.
#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "pipe/tensor_map.h"
#include "sim/mma_cases.h"
#include "verify_host.h"
#include "verify_memory.h"

namespace halftone::verify {
namespace {

std::vector<uint32_t> random_words(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> words(n);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  return words;
}

class Memory : public OnDevice {
 protected:
  std::vector<uint32_t> run_kernel(size_t index, const char* name, uint32_t threads,
                                   uint32_t shared_bytes, uint32_t blocks,
                                   const std::vector<uint32_t>& a, const std::vector<uint32_t>& b,
                                   const std::vector<uint32_t>& c, size_t words,
                                   uint32_t option = 0) {
    Stream stream(device_);
    const Buffer in_a(device_, a), in_b(device_, b), in_c(device_, c);
    const Buffer d(device_, std::vector<uint32_t>(words, 0xa5a5a5a5u));
    run(kMemoryEntries, index, name, threads, shared_bytes, blocks,
        {in_a.words(), in_b.words(), in_c.words(), d.words(), option}, stream);
    return d.read<uint32_t>();
  }
  void run_box(const TensorBoxLoad::Params& params) {
    const auto* gpu = kMemoryEntries.gpu;
    const KernelImage image{"tensor box",
                            Arch::sm_90a,
                            gpu != nullptr ? gpu[kTensorBoxLoad] : nullptr,
                            kMemoryEntries.sim[kTensorBoxLoad],
                            sizeof params,
                            TensorBoxLoad::kThreads};
    LaunchShape shape;
    shape.block = {TensorBoxLoad::kThreads};
    shape.shared_bytes = TensorBoxLoad::kSharedBytes;
    Stream stream(device_);
    launch(image, shape, params, stream);
    stream.synchronize();
  }
};

// Element `e` of register `i` of a lane is row `lane / 4`, column `2 (lane % 4) + e` of matrix i,
// or that of the transposed matrix.
TEST_P(Memory, MatricesOfEightByEight) {
  const uint32_t blocks = on_gpu() ? 1024 : 8;
  const auto a = random_words(blocks * 2048, 1), b = random_words(blocks * 32, 2);
  const auto c = random_words(blocks, 3);
  for (const bool trans : {false, true}) {
    for (uint32_t log_count = 0; log_count < 3; ++log_count) {
      const uint32_t count = 1u << log_count;
      const size_t index = (trans ? 3 : 0) + log_count;
      const auto loaded =
          run_kernel(kLoadMatrix + index, "ldmatrix", 32, 8192, blocks, a, b, c, blocks * 128);
      const auto stored =
          run_kernel(kStoreMatrix + index, "stmatrix", 32, 8192, blocks, a, b, c, blocks * 2048);
      size_t wrong_loads = 0, wrong_stores = 0;
      for (uint32_t block = 0; block < blocks; ++block) {
        std::vector<uint16_t> expected(4096);
        for (uint32_t lane = 0; lane < 32; ++lane) {
          for (uint32_t i = 0; i < count; ++i) {
            const uint32_t got = loaded[(block * 32 + lane) * 4 + i];
            for (uint32_t e = 0; e < 2; ++e) {
              const uint32_t pair = 2 * (lane % 4) + e;
              const uint32_t row = trans ? pair : lane / 4, column = trans ? lane / 4 : pair;
              const uint32_t at = (b[block * 32 + 8 * i + row] & 511) * 8 + column;
              const uint32_t want = a[block * 2048 + at / 2] >> 16 * (at % 2) & 0xffff;
              wrong_loads += (got >> 16 * e & 0xffff) != want;
              const uint32_t to = (b[block] + (8 * i + row) * (c[block] | 1)) & 511;
              expected[to * 8 + column] =
                  static_cast<uint16_t>(a[block * 2048 + lane * 4 + i] >> 16 * e);
            }
          }
        }
        for (uint32_t at = 0; at < 4096; ++at)
          wrong_stores +=
              expected[at] != static_cast<uint16_t>(stored[block * 2048 + at / 2] >> 16 * (at % 2));
      }
      EXPECT_EQ(wrong_loads + wrong_stores, 0u);
      const std::string form = ".x" + std::to_string(count) + (trans ? ".trans" : "");
      report(GetParam(), "ldmatrix" + form, blocks * 64 * count, wrong_loads);
      report(GetParam(), "stmatrix" + form, blocks * 4096, wrong_stores);
    }
  }
}

// A pattern may start off its boundary when the data lies as the absolute address swizzles it and
// the descriptor's base offset is 0, or when it lies as on a boundary and the base offset says by
// how many lines it is shifted. The simulator refuses base offsets, and never answers otherwise
// than the chip.
TEST_P(Memory, PatternsOffTheirBoundary) {
  using namespace sim;
  MmaCases cases(9);
  const MmaCase x = cases.make(MmaElement::bf16, MmaElement::bf16, MmaAccumulator::f32, 64, 64, 16,
                               MmaData::ordinary);
  MmaTile tile = x.tile(nullptr);
  std::vector<uint32_t> expected(4096), a(512), b(512);
  tile.c = nullptr;
  tile.d = expected.data();
  mma_exact(*mma_rule(Arch::sm_90a, MmaUnit::wgmma, x.a_type, x.b_type, x.accumulator), tile);
  std::memcpy(a.data(), x.a.data(), 2048);
  std::memcpy(b.data(), x.b.data(), 2048);
  for (const uint32_t shift : {0u, 1u, 3u, 4u, 7u}) {
    for (const bool relative : {false, true}) {
      for (const uint32_t base_offset : {0u, shift}) {
        const bool right = relative ? base_offset == shift : base_offset == 0;
        const std::string name = "shift " + std::to_string(shift) +
                                 (relative ? ", relative" : ", absolute") + ", base offset " +
                                 std::to_string(base_offset);
        std::vector<uint32_t> d;
        try {
          d = run_kernel(kShiftedPattern, "wgmma off its boundary", ShiftedPattern::kThreads,
                         ShiftedPattern::kSharedBytes, 1, a, b, b, 4096,
                         shift | (relative ? 8 : 0) | base_offset << 4);
        } catch (const Error&) {
          EXPECT_FALSE(on_gpu()) << name;
          EXPECT_NE(shift, 0u) << name << ": the simulator refuses what is always right";
          continue;
        }
        size_t wrong = 0;
        for (size_t i = 0; i < 4096; ++i) wrong += d[i] != expected[i];
        EXPECT_EQ(wrong == 0, right) << name << ": " << wrong << " of 4096 differ";
      }
    }
  }
}

struct BoxCase {
  const char* name;
  uint32_t rows, columns;  // of the box
  tile::Swizzle swizzle;
  uint32_t shift;
  int32_t x, y;
  bool fill_with_nan = false;
};

// The matrix is 64 x 64 of bf16, element i holds i + 1. Rows of a box have the pitch of the
// swizzle's span, the absolute address is swizzled, what lies outside is filled, and the whole box
// counts at the barrier.
TEST_P(Memory, TensorBoxes) {
  using tile::Swizzle;
  const BoxCase boxes[] = {
      {"128-byte swizzle", 16, 64, Swizzle::b128, 0, 0, 0},
      {"64-byte swizzle", 16, 32, Swizzle::b64, 0, 32, 8},
      {"32-byte swizzle", 16, 16, Swizzle::b32, 0, 16, 8},
      {"no swizzle", 16, 64, Swizzle::none, 0, 0, 16},
      {"no swizzle, short rows", 24, 8, Swizzle::none, 0, 8, 16},
      {"128-byte swizzle, 256 bytes off", 16, 64, Swizzle::b128, 256, 0, 0},
      {"64-byte swizzle, 128 bytes off", 16, 32, Swizzle::b64, 128, 0, 0},
      {"128-byte swizzle, rows of 64 bytes", 16, 32, Swizzle::b128, 0, 0, 0},
      {"rows outside", 16, 64, Swizzle::none, 0, 0, 56},
      {"rows and columns before the start", 16, 64, Swizzle::b128, 0, -8, -4},
      {"columns outside, filled with NaN", 16, 64, Swizzle::b128, 0, 40, 0, true},
  };
  std::vector<uint16_t> matrix(64 * 64);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint16_t>(i + 1);
  const Buffer source(device_, matrix);
  for (const BoxCase& box : boxes) {
    pipe::TensorBox description = pipe::matrix_box(hw::Type::bf16, source.words(), 64, 64, 128,
                                                   box.rows, box.columns, box.swizzle);
    description.fill_with_nan = box.fill_with_nan;
    constexpr size_t kWords = TensorBoxLoad::kWords;
    const Buffer out(device_, std::vector<uint32_t>(kWords + 1, 0xa5a5a5a5u));
    TensorBoxLoad::Params params{};
    try {
      params.map = pipe::make_tensor_map(description, device_);
      params.d = out.words();
      params.x = box.x, params.y = box.y, params.shift = box.shift;
      params.bytes = box.rows * box.columns * 2;
      run_box(params);
    } catch (const Error& e) {
      // The model refuses patterns off their boundary rather than guess.
      EXPECT_TRUE(!on_gpu() && box.shift != 0) << box.name << ": " << e.what();
      continue;
    }
    const auto d = out.read<uint32_t>();
    std::vector<uint8_t> expected(kWords * 4, 0xEE), got(kWords * 4);
    std::memcpy(got.data(), d.data(), got.size());
    const uint32_t pitch = box.swizzle == Swizzle::none ? box.columns * 2 : tile::span(box.swizzle);
    for (uint32_t row = 0; row < box.rows; ++row) {
      for (uint32_t column = 0; column < box.columns; ++column) {
        const int64_t y = box.y + static_cast<int64_t>(row), x = box.x + int64_t{column};
        const bool inside = x >= 0 && x < 64 && y >= 0 && y < 64;
        const uint16_t value = inside ? matrix[static_cast<size_t>(y * 64 + x)]
                                      : static_cast<uint16_t>(box.fill_with_nan ? 0x7ff7 : 0);
        const uint32_t at = tile::swizzled(box.swizzle, box.shift + row * pitch + column * 2);
        std::memcpy(&expected[at], &value, 2);
      }
    }
    size_t wrong = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] == got[i]) continue;
      if (++wrong == 1) {
        ADD_FAILURE() << box.name << ": byte " << i << std::hex << " is " << uint32_t{got[i]}
                      << ", not " << uint32_t{expected[i]};
      }
    }
    EXPECT_EQ(d[kWords], 1u) << box.name << ": the barrier did not see the bytes of the whole box";
    report(GetParam(), std::string("tensor copy, ") + box.name, expected.size(), wrong);
  }
}

// The NaN that marks elements outside a tensor is 0x7ff7 in every half, whatever the type.
TEST_P(Memory, FillOfOutsideElements) {
  const Buffer source(device_, std::vector<uint32_t>(64 * 64));
  for (const hw::Type type :
       {hw::Type::f16, hw::Type::bf16, hw::Type::f32, hw::Type::tf32, hw::Type::f64}) {
    const uint32_t bytes = hw::bits_of(type) / 8;
    pipe::TensorBox box =
        pipe::matrix_box(type, source.words(), 8, 8, 8 * bytes, 8, 16 / bytes, tile::Swizzle::none);
    box.fill_with_nan = true;
    constexpr size_t kWords = TensorBoxLoad::kWords;
    const Buffer out(device_, std::vector<uint32_t>(kWords + 1, 0xa5a5a5a5u));
    TensorBoxLoad::Params params{};
    params.map = pipe::make_tensor_map(box, device_);
    params.d = out.words();
    params.y = 8;  // below the last row
    params.bytes = box.box_bytes();
    run_box(params);
    const auto d = out.read<uint32_t>();
    for (uint32_t i = 0; i < box.box_bytes() / 4; ++i)
      ASSERT_EQ(d[i], 0x7ff77ff7u) << std::hex << "type " << static_cast<int>(type);
  }
}

TEST_P(Memory, BytesMayCompleteBeforeTheyAreExpected) {
  const std::vector<uint32_t> none(8);
  const auto d = run_kernel(kEarlyBytes, "bytes before expect_tx", 32, EarlyBytes::kSharedBytes, 1,
                            none, none, none, 2);
  EXPECT_EQ(d[0], 0u) << "the phase ended early";
  EXPECT_EQ(d[1], 1u) << "the phase did not end";
}

TEST_P(Memory, OneLaneIsElected) {
  const std::vector<uint32_t> masks = {0xffffffff, 0xfffffff0, 0x0000ff00, 0xaaaaaaaa,
                                       0x80000000, 0x00000001, 0x12345678, 0x80000001};
  const auto d = run_kernel(kElect, "elect", 32, 0, 1, masks, masks, masks, 16);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(d[8 + i], 1u) << std::hex << masks[i];
    ASSERT_LT(d[i], 32u);
    EXPECT_NE(masks[i] >> d[i] & 1, 0u) << std::hex << masks[i] << " elected " << d[i];
    // Measured, promised by nobody: the simulator elects others too.
    if (on_gpu()) {
      EXPECT_EQ(d[i], static_cast<uint32_t>(std::countr_zero(masks[i])));
    }
  }
}

HT_ON_DEVICES(Memory);

}  // namespace
}  // namespace halftone::verify

// Tensor maps: the rules of their arguments, and copies through them, element by element.
#include "sim/memory/tensor_map.h"

#include <bit>
#include <random>

#include "halftone/error.h"
#include "sim/rule_cases.h"

namespace halftone::test {
namespace {

struct Description {
  TensorMapType type = TensorMapType::u16;
  std::vector<uint64_t> extent{64, 40};
  std::vector<uint64_t> stride{128};  // bytes
  std::vector<uint32_t> box{64, 8};
  std::vector<uint32_t> step{1, 1, 1, 1, 1};
  TensorMapSwizzle swizzle = TensorMapSwizzle::none;
  TensorMapFill fill = TensorMapFill::zero;
};

TensorMap make(const Description& d, void* address) {
  return make_tensor_map(d.type, static_cast<uint32_t>(d.extent.size()), address, d.extent.data(),
                         d.stride.data(), d.box.data(), d.step.data(), d.swizzle, d.fill);
}

TEST(TensorMap, RulesNameTheArgument) {
  DeviceArray<uint8_t> memory(65536);
  const auto message = [&](auto change, size_t offset = 0) -> std::string {
    Description d;
    change(d);
    try {
      make(d, memory.data + offset);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << '"' << text << '"';
  };
  EXPECT_EQ(message([](Description&) {}), "");
  expect(message([](Description&) {}, 8), "aligned to 16");
  expect(message([](Description& d) { d.extent = {64, 1, 1, 1, 1, 1}; }), "rank 6");
  expect(message([](Description& d) { d.extent[1] = 0; }), "extent[1] = 0");
  expect(message([](Description& d) { d.extent[1] = (uint64_t{1} << 32) + 1; }), "extent[1]");
  expect(message([](Description& d) { d.stride[0] = 136; }), "stride[1] = 136");
  expect(message([](Description& d) { d.stride[0] = uint64_t{1} << 40; }), "2^40");
  expect(message([](Description& d) { d.stride[0] = 112; }), "less than a row");
  expect(message([](Description& d) { d.box[1] = 257; }), "box[1] = 257");
  expect(message([](Description& d) { d.box[0] = 0; }), "box[0] = 0");
  expect(message([](Description& d) { d.box[0] = 12; }), "multiple of 16 bytes");
  expect(message([](Description& d) { d.swizzle = TensorMapSwizzle::b64; }), "swizzle's 64");
  expect(message([](Description& d) { d.step[1] = 9; }), "element stride[1] = 9");
  expect(message([](Description& d) { d.fill = TensorMapFill::nan; }), "floating-point");
  expect(message([](Description& d) { d.type = TensorMapType::u4_align16; }, 16), "32 bytes");
  expect(message([](Description& d) { d.type = TensorMapType::u4_align16; }), "extent[0] = 64");
}

struct Copy {
  const char* name;
  Description map;
  std::vector<int32_t> at;
  uint32_t shared_offset = 0;  // of the tile, beyond a multiple of 1024
};

// Loads the box, and compares every element of shared memory with its definition.
void check_load(const Copy& c, bool damage) {
  const Description& d = c.map;
  DeviceArray<uint8_t> memory(1 << 20);
  std::mt19937 random(5);
  for (uint32_t i = 0; i < 1 << 20; ++i) memory.data[i] = static_cast<uint8_t>(random());
  DeviceArray<TensorMap> map(1);
  *map.data = make(d, memory.data);
  const auto rank = static_cast<uint32_t>(d.extent.size());
  const uint32_t size = map.data->element_bits() / 8, bytes = map.data->box_bytes();
  const uint32_t span = d.swizzle == TensorMapSwizzle::none ? 0 : 16u << int(d.swizzle);
  const uint32_t inner = d.box[0] * size, pitch = span > inner ? span : inner;
  std::vector<uint8_t> seen(map.data->shared_bytes());
  uint32_t tile_address = 0;
  const SimulatorReport report = violations(
      {.block = {32}, .shared_bytes = 65536},
      [&](Thread& me) {
        const uint32_t full = base_of(me), tile = full + 1024 + c.shared_offset;
        make_barriers(me, {{full, 1}});
        if (me.lane == 0) {
          mbarrier_arrive(me, full, {.expect_bytes = bytes}, at());
          tensor_load(me, map.data, c.at.data(), tile, full, 0, at());
        }
        wait(me, full, 0);
        if (me.lane != 0) return;
        tile_address = tile;
        for (uint32_t i = 0; i < seen.size(); ++i) {
          // Rows that are shorter than the swizzle's span leave holes.
          const uint32_t row_byte =
              (((tile + i) ^ ((tile + i) >> 3 & (span ? span - 16 : 0))) - tile) % pitch;
          if (row_byte < inner) seen[i] = read_shared<uint8_t>(me, tile + i, at());
        }
      },
      {.severity = Options::Severity::check, .schedule = Options::Schedule::adversarial});
  ASSERT_TRUE(report.clean()) << to_string(report, false);
  uint32_t wrong = 0, row = 0;
  uint32_t count[5] = {1, 1, 1, 1, 1};
  for (uint32_t k = 1; k < rank; ++k) count[k] = (d.box[k] + d.step[k] - 1) / d.step[k];
  for (uint32_t i4 = 0; i4 < count[4]; ++i4)
    for (uint32_t i3 = 0; i3 < count[3]; ++i3)
      for (uint32_t i2 = 0; i2 < count[2]; ++i2)
        for (uint32_t i1 = 0; i1 < count[1]; ++i1, ++row) {
          const uint32_t index[5] = {0, i1, i2, i3, i4};
          for (uint32_t i0 = 0; i0 < d.box[0]; ++i0) {
            int64_t offset = int64_t{c.at[0] + int32_t(i0)} * size;
            bool inside =
                c.at[0] + int64_t{i0} >= 0 && c.at[0] + int64_t{i0} < int64_t(d.extent[0]);
            for (uint32_t k = 1; k < rank; ++k) {
              const int64_t x = c.at[k] + int64_t{index[k]} * d.step[k];
              inside = inside && x >= 0 && x < int64_t(d.extent[k]);
              offset += x * int64_t(d.stride[k - 1]);
            }
            uint32_t address = tile_address + row * pitch + i0 * size;
            if (span != 0) address ^= address >> 3 & (span - 16);
            for (uint32_t b = 0; b < size; ++b) {
              // The NaN of the copy engine is 0x7ff7 in every half, whatever the type.
              const uint8_t nan = b % 2 == 0 ? 0xf7 : 0x7f;
              const uint8_t fill = d.fill == TensorMapFill::nan ? nan : 0;
              const uint8_t want = inside ? memory.data[offset + b] : fill;
              wrong += seen[address - tile_address + b] != (damage ? want + 1 : want);
            }
          }
        }
  EXPECT_EQ(wrong == 0, !damage) << c.name << ": " << wrong << " bytes";
}

TEST(TensorMap, LoadsAreTheirDefinition) {
  using S = TensorMapSwizzle;
  const auto f32 = TensorMapType::f32;
  const Copy copies[] = {
      {"plain", {}, {0, 8}},
      {"outside_above", {}, {16, 36}},
      {"outside_below", {}, {-8, -3}},
      {"entirely_outside", {}, {64, 0}},
      {"nan", {.type = TensorMapType::bf16, .fill = TensorMapFill::nan}, {-8, 38}},
      {"swizzle_128", {.swizzle = S::b128}, {0, 4}},
      {"swizzle_128_shifted", {.swizzle = S::b128}, {0, 4}, 256},
      {"swizzle_64", {.box = {32, 16}, .swizzle = S::b64}, {24, 30}},
      {"swizzle_64_shifted", {.box = {32, 16}, .swizzle = S::b64}, {24, 30}, 128},
      {"swizzle_32", {.box = {16, 16}, .swizzle = S::b32}, {8, 1}},
      {"narrow_rows", {.box = {32, 16}, .swizzle = S::b128}, {8, 2}},
      {"rank_1", {.extent = {1000}, .stride = {}, .box = {256}}, {904}},
      {"rank_3",
       {.type = f32, .extent = {12, 5, 7}, .stride = {64, 512}, .box = {8, 3, 4}},
       {8, 3, 5}},
      {"steps",
       {.type = f32,
        .extent = {12, 9, 20},
        .stride = {64, 1024},
        .box = {8, 7, 5},
        .step = {2, 2, 3, 1, 1}},
       {0, 1, 2}},
      {"rank_5",
       {.type = TensorMapType::u8,
        .extent = {64, 3, 4, 3, 2},
        .stride = {64, 256, 1024, 4096},
        .box = {32, 2, 2, 2, 2},
        .swizzle = S::b32},
       {16, 1, -1, 1, 1}},
  };
  for (const Copy& copy : copies) {
    check_load(copy, false);
  }
  check_load(copies[5], true);
}

// As an H200 does: with any other coordinate it stops at an illegal instruction.
TEST(TensorMap, LoadsBeginAtSixteenBytes) {
  DeviceArray<uint8_t> memory(16384);
  for (const auto& [type, size] :
       {std::pair{TensorMapType::u8, 1}, {TensorMapType::bf16, 2}, {TensorMapType::f32, 4}}) {
    DeviceArray<TensorMap> map(1);
    *map.data =
        make({.type = type, .extent = {64, 16}, .stride = {256}, .box = {16, 8}}, memory.data);
    for (const int32_t at0 : {0, 1, 2, 4, 8, 16, -1, -8, -16}) {
      const SimulatorReport report =
          violations({.block = {1}, .shared_bytes = 4096}, [&, bytes = 128 * size](Thread& me) {
            const uint32_t full = base_of(me), tile = full + 1024;
            const int32_t where[] = {at0, 2};
            make_barriers(me, {{full, 1}});
            mbarrier_arrive(me, full, {.expect_bytes = static_cast<uint32_t>(bytes)}, at());
            tensor_load(me, map.data, where, tile, full, 0, at());
            wait(me, full, 0);
          });
      const bool whole = at0 * size % 16 == 0;
      EXPECT_EQ(report.clean(), whole) << at0 << " of " << size << " bytes";
      EXPECT_EQ(to_string(report, false).find("tensor_map.coordinate") == std::string::npos, whole);
    }
  }
}

TEST(TensorMap, PaddedFourBitValuesTakeSixteenBytesOfSixteen) {
  DeviceArray<uint8_t> memory(4096);
  for (int i = 0; i < 4096; ++i) memory.data[i] = static_cast<uint8_t>(i * 7);
  DeviceArray<TensorMap> map(1);
  *map.data = make(
      {.type = TensorMapType::u4_align16, .extent = {256, 16}, .stride = {128}, .box = {128, 2}},
      memory.data);
  EXPECT_EQ(map.data->box_bytes(), 128u);
  EXPECT_EQ(map.data->shared_bytes(), 256u);
  const SimulatorReport report = violations({.block = {1}, .shared_bytes = 4096}, [&](Thread& me) {
    const uint32_t full = base_of(me), tile = full + 1024;
    const int32_t where[] = {128, 3};
    make_barriers(me, {{full, 1}});
    mbarrier_arrive(me, full, {.expect_bytes = 128}, at());
    tensor_load(me, map.data, where, tile, full, 0, at());
    wait(me, full, 0);
    for (uint32_t row = 0; row < 2; ++row) {
      for (uint32_t i = 0; i < 8; ++i) {
        EXPECT_EQ(read_shared<uint64_t>(me, tile + row * 128 + i * 16, at()),
                  *reinterpret_cast<uint64_t*>(memory.data + (3 + row) * 128 + 64 + i * 8));
      }
    }
  });
  EXPECT_TRUE(report.clean()) << to_string(report, false);
}

TEST(TensorMap, StoresClipAndReduce) {
  for (const auto how : {TensorReduction::none, TensorReduction::add, TensorReduction::max}) {
    DeviceArray<float> memory(16 * 32);
    for (int i = 0; i < 16 * 32; ++i) memory.data[i] = static_cast<float>(i % 50);
    DeviceArray<TensorMap> map(1);
    *map.data =
        make({.type = TensorMapType::f32, .extent = {30, 14}, .stride = {128}, .box = {8, 4}},
             memory.data);
    const SimulatorReport report =
        violations({.block = {32}, .shared_bytes = 4096}, [&](Thread& me) {
          const int32_t where[] = {24, 11};
          write_shared(me, base_of(me) + 4 * me.lane, 20.0f, at());
          fence_proxy_async(me, at());
          block_sync();
          if (me.lane != 0) return;
          tensor_store(me, map.data, where, base_of(me), how, at());
          commit_group(me, Engine::bulk, at());
          wait_group(me, Engine::bulk, 0, false, at());
        });
    ASSERT_TRUE(report.clean()) << to_string(report, false);
    for (int i = 0; i < 16 * 32; ++i) {
      const int row = i / 32, column = i % 32;
      const bool hit = row >= 11 && row < 14 && column >= 24 && column < 30;
      const auto old = static_cast<float>(i % 50);
      const float want = !hit                           ? old
                         : how == TensorReduction::none ? 20.0f
                         : how == TensorReduction::add  ? old + 20
                                                        : std::max(old, 20.0f);
      EXPECT_EQ(memory.data[i], want) << row << ", " << column;
    }
  }
}

TEST(TensorMap, MulticastFillsEveryBlockOfTheMask) {
  DeviceArray<uint16_t> memory(64 * 40);
  for (int i = 0; i < 64 * 40; ++i) memory.data[i] = static_cast<uint16_t>(i);
  DeviceArray<TensorMap> map(1);
  *map.data = make({}, memory.data);
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const SimulatorReport report = violations(
        {.grid = {4}, .block = {32}, .cluster = {4}, .shared_bytes = 8192},
        [&](Thread& me) {
          const uint32_t full = base_of(me), tile = full + 1024;
          const int32_t where[] = {0, 8};
          make_barriers(me, {{full, 1}});
          cluster_arrive(true, at());
          cluster_wait(at());
          if (me.lane == 0 && cluster_rank() != 2) {
            mbarrier_arrive(me, full, {.expect_bytes = 1024}, at());
          }
          if (me.lane == 0 && cluster_rank() == 1) {
            tensor_load(me, map.data, where, tile, full, 0b1011, at());
          }
          if (cluster_rank() != 2) {
            wait(me, full, 0);
            EXPECT_EQ(read_shared<uint16_t>(me, tile + 2 * me.lane, at()), 8 * 64 + me.lane);
          }
          cluster_arrive(true, at());
          cluster_wait(at());
        },
        {.severity = Options::Severity::strict,
         .schedule = Options::Schedule::adversarial,
         .seed = seed});
    ASSERT_TRUE(report.clean()) << to_string(report, false);
  }
}

}  // namespace
}  // namespace halftone::test

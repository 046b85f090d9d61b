// Tensor copies: boxes of every rank, swizzles, multicast, reductions.
#include "hw/copy/tma.h"

#include <gtest/gtest.h>

#include "hw/cluster.h"
#include "hw/fence.h"
#include "hw/kernels.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/warp.h"
#include "pipe/tensor_map.h"

namespace halftone::test {
namespace {

using hw::BulkReduction;
using hw::Mbarrier;
using hw::Type;

constexpr Arch kTmaArchs[] = {Arch::sm_90a, Arch::sm_100a, Arch::sm_120a};

void number(const DeviceArray<uint32_t>& array) {
  for (uint32_t i = 0; i < array.size(); ++i) array[i] = i + 1;
}

// A box of every rank, where it leaves the tensor too; back through a store and a reduction.
template <int kRank>
void check_tensor(Arch arch) {
  constexpr uint32_t kExtent[5] = {12, 5, 4, 3, 2}, kBox[5] = {8, 2, 2, 2, 1};
  uint32_t elements = 1, box = 1;
  for (int d = 0; d < kRank; ++d) elements *= kExtent[d], box *= kBox[d];
  DeviceArray<uint32_t> in(arch, elements), out(arch, elements);
  number(in);
  const auto map_of = [&](const DeviceArray<uint32_t>& array) {
    pipe::TensorBox description{.type = Type::u32, .address = array.data(), .rank = kRank};
    uint64_t stride = 4;
    for (int d = 0; d < kRank; ++d) {
      const auto at = static_cast<size_t>(d);
      description.extent[at] = kExtent[d];
      description.box[at] = kBox[d];
      if (d > 0) description.stride[at - 1] = stride;
      stride *= kExtent[d];
    }
    return pipe::make_tensor_map(description, Device::simulator(arch));
  };
  struct Maps {
    hw::TensorMap in, out;
  };
  const DeviceArray<Maps> maps(arch, 1);
  maps[0] = {map_of(in), map_of(out)};
  // The last box along each dimension: half of it lies outside.
  int32_t at[kRank];
  for (int d = 0; d < kRank; ++d) {
    at[d] = static_cast<int32_t>(kExtent[d] - (kBox[d] + 1) / 2);
  }
  run_everywhere(arch, {.block = {32}, .shared_bytes = 2048}, [&](sim::Thread& me) {
    const hw::SharedAddress base = hw::shared_memory_base(), tile = base + 1024;
    const Mbarrier barrier{base};
    if (me.index == 0) {
      hw::prefetch_tensor_map(&maps[0].in);
      hw::mbarrier_init(barrier, 1);
      hw::fence_mbarrier_init();
      hw::mbarrier_arrive_expect_tx(barrier, box * 4);
      hw::tensor_prefetch(&maps[0].in, at);
      hw::tensor_load(tile, &maps[0].in, at, barrier);
    }
    hw::warp_sync();
    hw::mbarrier_wait(barrier, 0);
    for (uint32_t i = me.index; i < box; i += 32) {
      uint32_t rest = i, index = 0, stride = 1;
      bool inside = true;
      for (int d = 0; d < kRank; ++d) {
        const uint32_t x = static_cast<uint32_t>(at[d]) + rest % kBox[d];
        rest /= kBox[d];
        inside = inside && x < kExtent[d];
        index += x * stride;
        stride *= kExtent[d];
      }
      EXPECT_EQ(hw::load_shared<uint32_t>(tile + i * 4), inside ? index + 1 : 0) << "element " << i;
    }
    hw::warp_sync();
    if (me.index == 0) {
      hw::tensor_store(&maps[0].out, at, tile);
      hw::bulk_commit();
      hw::bulk_wait<0>();
      hw::tensor_reduce<BulkReduction::add>(&maps[0].out, at, tile);
      hw::bulk_commit();
      hw::bulk_wait<0>();
      hw::tensor_reduce<BulkReduction::max>(&maps[0].out, at, tile, hw::kEvictFirst);
      hw::bulk_commit();
      hw::bulk_wait_read<0>();
      hw::bulk_wait<0>();
    }
  });
  for (uint32_t i = 0; i < elements; ++i) {
    uint32_t rest = i;
    bool copied = true;
    for (int d = 0; d < kRank; ++d) {
      copied = copied && rest % kExtent[d] >= static_cast<uint32_t>(at[d]);
      rest /= kExtent[d];
    }
    ASSERT_EQ(out[i], copied ? 2 * (i + 1) : 0) << "rank " << kRank << " element " << i;
  }
}
TEST(TensorCopy, EveryRank) {
  for (const Arch arch : kTmaArchs) {
    check_tensor<1>(arch);
    check_tensor<2>(arch);
    check_tensor<3>(arch);
    check_tensor<4>(arch);
    check_tensor<5>(arch);
  }
  EXPECT_TRUE(refused(Arch::sm_89,
                      [] { hw::tensor_load(hw::SharedAddress{}, nullptr, {0}, hw::Mbarrier{}); }));
}

// Halves of a tile by two blocks, each to both; swizzled, with the L2's hints.
TEST(TensorCopy, MulticastAndSwizzle) {
  for (const auto swizzle :
       {tile::Swizzle::none, tile::Swizzle::b32, tile::Swizzle::b64, tile::Swizzle::b128}) {
    const uint32_t span = swizzle == tile::Swizzle::none ? 128 : tile::span(swizzle);
    const uint32_t columns = span / 2;
    DeviceArray<uint16_t> in(Arch::sm_90a, 64 * 64);
    for (uint32_t i = 0; i < 64 * 64; ++i) in[i] = static_cast<uint16_t>(i);
    DeviceArray<hw::TensorMap> map(Arch::sm_90a, 1);
    map[0] = pipe::make_tensor_map(
        pipe::matrix_box(Type::bf16, in.data(), 64, 64, 128, 16, columns, swizzle),
        Device::simulator(Arch::sm_90a));
    const LaunchShape shape{.grid = {2}, .block = {32}, .cluster = {2}, .shared_bytes = 8192};
    run_everywhere(Arch::sm_90a, shape, [&](sim::Thread& me) {
      const hw::SharedAddress base = hw::shared_memory_base(), tile = base + 1024;
      const uint32_t rank = hw::cluster_rank(), bytes = 16 * span;
      const Mbarrier barrier{base};
      if (me.index == 0) {
        hw::mbarrier_init(barrier, 1);
        hw::fence_mbarrier_init();
      }
      hw::cluster_arrive();
      hw::cluster_wait();
      if (me.index == 0) {
        hw::mbarrier_arrive_expect_tx(barrier, 3 * bytes);
        const auto row = static_cast<int32_t>(16 * rank);
        hw::tensor_load_multicast(tile + rank * bytes, map.data(), {0, row}, barrier, 3);
        if (rank == 0) {
          hw::tensor_load_multicast(tile + 2 * bytes, map.data(), {0, 48}, barrier, 3,
                                    hw::kEvictFirst);
        }
      }
      hw::mbarrier_wait(barrier, 0);
      for (uint32_t i = me.index; i < 48 * columns; i += 32) {
        const uint32_t line = i / columns, column = i % columns;
        const uint32_t a = tile.value + line * span + column * 2;
        const uint32_t key = swizzle == tile::Swizzle::none ? 0 : a >> 3 & (span - 16);
        const uint32_t row = line < 32 ? line : line + 16;
        EXPECT_EQ(hw::load_shared<uint16_t>(hw::SharedAddress{a ^ key}), row * 64 + column)
            << "line " << line << " column " << column;
      }
      hw::cluster_arrive();
      hw::cluster_wait();
    });
  }
}

}  // namespace
}  // namespace halftone::test

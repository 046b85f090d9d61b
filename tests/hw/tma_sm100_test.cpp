// Tensor copies of sm_100a: four rows gathered and scattered, loads for pairs of blocks.
#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include "hw/barrier.h"
#include "hw/cluster.h"
#include "hw/copy/bulk_copy.h"
#include "hw/copy/tma_sm100.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/thread.h"
#include "pipe/tensor_map.h"
#include "sim/kernels.h"
#include "sim/memory/device_memory.h"

namespace halftone::test {
namespace {

constexpr uint32_t kRows = 40, kColumns = 64;  // of 16 bits

// A matrix of unique numbers in the memory of the simulated device.
struct Matrix {
  explicit Matrix(Arch a)
      : arch(a), data(static_cast<uint16_t*>(sim::allocate(a, kRows * kColumns * 2))) {
    std::iota(data, data + kRows * kColumns, uint16_t{100});
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  ~Matrix() { sim::deallocate(data); }
  hw::TensorMap map(uint32_t rows, uint32_t columns, tile::Swizzle swizzle) const {
    return pipe::make_tensor_map(pipe::matrix_box(hw::Type::u16, data, kRows, kColumns,
                                                  kColumns * 2, rows, columns, swizzle),
                                 Device::simulator(arch));
  }
  uint16_t at(int row, int column) const {
    if (row < 0 || row >= int{kRows} || column < 0 || column >= int{kColumns}) return 0;
    return data[row * int{kColumns} + column];
  }
  Arch arch;
  uint16_t* data;
};

SimulatorReport run_strict(Arch arch, uint32_t blocks, const std::function<void()>& body,
                           uint64_t seed) {
  Stream stream = simulated(arch,
                            {.severity = SimulatorOptions::Severity::strict,
                             .schedule = SimulatorOptions::Schedule::adversarial,
                             .seed = seed,
                             .throws = false},
                            1);
  run(stream, {.grid = {blocks}, .block = {32}, .cluster = {blocks}, .shared_bytes = 16 * 1024},
      [&](sim::Thread&) { body(); });
  return simulator_report(stream);
}

TEST(TensorGather4, TakesAnyFourRows) {
  for (const Arch arch : {Arch::sm_100a, Arch::sm_120a}) {
    const Matrix matrix(arch);
    const hw::TensorMap map = matrix.map(1, 64, tile::Swizzle::b128);
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const SimulatorReport report = run_strict(
          arch, 1,
          [&] {
            using namespace hw;
            const SharedAddress to = shared_memory_base();
            const Mbarrier full{to + 4096};
            constexpr int32_t kAt[5] = {0, 7, 3, 39, 40};  // the last is outside: zeros
            if (thread_index().x == 0) {
              mbarrier_init(full, 1);
              fence_mbarrier_init();
              mbarrier_arrive_expect_tx(full, 4 * 128);
              tensor_load_gather4(to, &map, kAt, full);
            }
            barrier_sync();
            mbarrier_wait(full, 0);
            for (int row = 0; row < 4; ++row) {
              for (uint32_t column = thread_index().x; column < 64; column += 32) {
                const uint32_t offset = static_cast<uint32_t>(row) * 128 + column * 2;
                const SharedAddress at{tile::swizzled(tile::Swizzle::b128, to.value + offset)};
                EXPECT_EQ(load_shared<uint16_t>(at),
                          matrix.at(kAt[1 + row], static_cast<int>(column)));
              }
            }
          },
          seed);
      EXPECT_TRUE(report.clean()) << to_string(report, false);
    }
  }
}

TEST(TensorScatter4, PutsFourRowsBack) {
  Matrix matrix(Arch::sm_100a);
  const hw::TensorMap map = matrix.map(1, 32, tile::Swizzle::none);
  const SimulatorReport report = run_strict(
      Arch::sm_100a, 1,
      [&] {
        using namespace hw;
        const SharedAddress from = shared_memory_base();
        constexpr int32_t kAt[5] = {32, 11, 2, 30, 17};
        for (uint32_t row = 0; row < 4; ++row) {
          store_shared(from + (row * 64 + thread_index().x * 2),
                       static_cast<uint16_t>(9000 + row * 32 + thread_index().x));
        }
        fence_proxy_async();
        barrier_sync();
        if (thread_index().x == 0) {
          tensor_store_scatter4(&map, kAt, from);
          bulk_commit();
          bulk_wait<0>();
        }
      },
      1);
  EXPECT_TRUE(report.clean()) << to_string(report, false);
  constexpr int kRowsWritten[4] = {11, 2, 30, 17};
  for (int row = 0; row < 4; ++row) {
    for (int column = 0; column < 32; ++column) {
      EXPECT_EQ(matrix.at(kRowsWritten[row], 32 + column), 9000 + row * 32 + column);
      EXPECT_EQ(matrix.at(kRowsWritten[row], column), 100 + kRowsWritten[row] * 64 + column);
    }
  }
}

// Both blocks load their rows; the barrier of the even one gets the bytes of both.
TEST(TensorLoadPair, SignalsTheLeadersBarrier) {
  const Matrix matrix(Arch::sm_100a);
  const hw::TensorMap map = matrix.map(8, 64, tile::Swizzle::b128);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const SimulatorReport report = run_strict(
        Arch::sm_100a, 2,
        [&] {
          using namespace hw;
          const SharedAddress to = shared_memory_base();
          const Mbarrier full{to + 4096};
          const ClusterAddress leader = map_shared_rank(full.address, 0);
          const uint32_t rank = cluster_rank();
          if (thread_index().x == 0 && rank == 0) {
            mbarrier_init(full, 1);
            fence_mbarrier_init();
          }
          cluster_arrive();
          cluster_wait();
          if (thread_index().x == 0) {
            if (rank == 0) mbarrier_arrive_expect_tx(full, 2 * 1024 + 2 * 1024);
            const int32_t at[2] = {0, static_cast<int32_t>(8 * rank)};
            tensor_load_pair(to, &map, at, leader);
            if (rank == 1) {  // the same rows into both, from the odd block
              const int32_t shared_rows[2] = {0, 24};
              tensor_load_pair_multicast(to + 1024, &map, shared_rows, leader, 3);
            }
          }
          if (rank == 0) mbarrier_wait<Scope::cluster>(full, 0);
          cluster_arrive();
          cluster_wait();
          for (uint32_t i = thread_index().x; i < 1024; i += 32) {
            const uint32_t first = i < 512 ? 8 * rank : 24 - 8;
            const SharedAddress at{tile::swizzled(tile::Swizzle::b128, to.value + i * 2)};
            EXPECT_EQ(load_shared<uint16_t>(at),
                      matrix.at(static_cast<int>(first + i / 64), static_cast<int>(i % 64)));
          }
        },
        seed);
    EXPECT_TRUE(report.clean()) << to_string(report, false);
  }
}

TEST(TensorGather4, BoxesOfManyRowsAreRefused) {
  const Matrix matrix(Arch::sm_100a);
  const hw::TensorMap map = matrix.map(8, 64, tile::Swizzle::b128);
  const SimulatorReport report = run_strict(
      Arch::sm_100a, 1,
      [&] {
        const int32_t at[5] = {};
        hw::tensor_prefetch_gather4(&map, at);
      },
      1);
  EXPECT_NE(find(report, "tma.gather4"), nullptr) << to_string(report, false);
}

}  // namespace
}  // namespace halftone::test

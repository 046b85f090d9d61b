// Counters of a launch and the bounds made from them.
#include "sim/counters.h"

#include <gtest/gtest.h>

#include "halftone/tensor.h"
#include "sim/counter_state.h"
#include "sim/kernels.h"

namespace halftone::test {
namespace {

using sim::wavefronts;

uint32_t strided(uint32_t stride, uint32_t bytes, uint32_t mask = sim::kFullMask) {
  uint32_t addresses[32];
  for (uint32_t i = 0; i < 32; ++i) addresses[i] = i * stride;
  return wavefronts(addresses, mask, bytes);
}

TEST(Wavefronts, FollowTheBanks) {
  EXPECT_EQ(strided(4, 4), 1u);     // a row of words
  EXPECT_EQ(strided(0, 4), 1u);     // one word for all
  EXPECT_EQ(strided(8, 4), 2u);     // every second bank
  EXPECT_EQ(strided(128, 4), 32u);  // one bank
  EXPECT_EQ(strided(132, 4), 1u);   // padded by a word
  EXPECT_EQ(strided(2, 2), 1u);     // two lanes share a word
  EXPECT_EQ(strided(1, 1), 1u);
  EXPECT_EQ(strided(8, 8), 2u);      // 256 bytes
  EXPECT_EQ(strided(16, 16), 4u);    // 512 bytes
  EXPECT_EQ(strided(128, 16), 32u);  // a column of a 128-byte row: 8 lanes of a phase collide
  EXPECT_EQ(strided(144, 16), 4u);   // padded by 16 bytes
  EXPECT_EQ(strided(128, 4, 0xf), 4u);
  EXPECT_EQ(strided(128, 16, 0xff), 8u);
  EXPECT_EQ(strided(16, 16, 0xff), 1u);
}

TEST(Counters, LanesOfOneSiteFormAnAccess) {
  for (const auto schedule : kSchedules) {
    Stream stream = simulated(Arch::sm_90a, {.schedule = schedule});
    run(stream, {.block = {64}}, [](sim::Thread& me) {
      for (uint32_t i = 0; i < 10; ++i) {
        // Lanes run one after the other, each through all of its rounds: still 10 accesses a warp.
        sim::count_shared(me, 1024 + (i * 32 + me.lane) * 4, 4, "ld.shared.b32", Site::current());
        sim::count_shared(me, 1024 + me.lane * 128, 16, "st.shared.b128", Site::current());
      }
      if (me.lane == 0) {
        for (uint32_t i = 0; i < 200; ++i) {
          sim::count_shared(me, 1024, 4, "ld.shared.b32", Site::current());
        }
      }
    });
    const SimulatorCounters& counters = simulator_report(stream).counters;
    ASSERT_EQ(counters.shared_sites.size(), 3u);
    const auto& column = counters.shared_sites[0];  // most conflicts first
    EXPECT_EQ(column.what, "st.shared.b128");
    EXPECT_EQ(column.file, "counters_test.cpp");
    EXPECT_EQ(column.accesses, 20u);
    EXPECT_EQ(column.wavefronts, 640u);
    EXPECT_EQ(column.ideal, 80u);
    EXPECT_EQ(column.bytes, 20u * 512);
    const auto& row = counters.shared_sites[1];
    EXPECT_EQ(row.accesses, 20u);
    EXPECT_EQ(row.wavefronts, 20u);
    EXPECT_EQ(counters.shared_sites[2].accesses, 400u);  // of one lane
    EXPECT_EQ(counters.shared_wavefronts, 640u + 20 + 400);
  }
}

TEST(Counters, InstructionsMultiplyAddsAndUnits) {
  Stream stream = simulated();
  run(stream, {.grid = {4}, .block = {64}}, [](sim::Thread& me) {
    sim::barrier_sync(0, 0, Site::current());
    sim::warp_sync(sim::kFullMask, Site::current());
    sim::count_mufu(2);
    if (me.lane == 0) sim::count_multiply_adds("mma.sync.bf16", 2048);
    if (me.index == 0) {
      uint32_t rows[8];
      for (uint32_t i = 0; i < 8; ++i) rows[i] = i * 128;
      sim::count_shared_rows(rows, "ldmatrix", Site::current());
      sim::count_async_shared(me, 512);
    }
  });
  const SimulatorReport& report = simulator_report(stream);
  const SimulatorCounters& counters = report.counters;
  ASSERT_EQ(counters.instructions.size(), 2u);
  EXPECT_EQ(counters.instructions[0].name, "bar.sync");
  EXPECT_EQ(counters.instructions[0].count, 8u);  // of warps
  EXPECT_EQ(counters.instructions[1].count, 8u);
  ASSERT_EQ(counters.multiply_adds.size(), 1u);
  EXPECT_EQ(counters.multiply_adds[0].count, 8u * 2048);
  EXPECT_EQ(counters.mufu, 2u * 256);
  EXPECT_EQ(counters.barrier_waits, 4u * 63);
  EXPECT_EQ(counters.shared_wavefronts, 4u * 8);
  EXPECT_EQ(counters.shared_ideal, 4u);

  const sim::Chip& chip = sim::chip(Arch::sm_90a);
  const double clocks = chip.sm_count * chip.rates.clock_ghz * 1e9;
  for (const SimulatorBound& bound : report.bounds) {
    if (bound.unit == "tensor core") {
      EXPECT_DOUBLE_EQ(bound.seconds, 8 * 2048 / 2048 / clocks);
    }
    if (bound.unit == "mufu") {
      EXPECT_DOUBLE_EQ(bound.seconds, 512 / 16 / clocks);
    }
    if (bound.unit == "shared memory") {
      EXPECT_DOUBLE_EQ(bound.seconds, (32 + 2048 / 128) / clocks);
    }
  }
  EXPECT_EQ(report.bounds.size(), 3u);
  EXPECT_EQ(report.bounds[0].unit, "shared memory");
}

TEST(Counters, GlobalBytesAndDistinctSectors) {
  Stream stream = simulated(Arch::sm_80);
  const Tensor data = Tensor::zeros({4096}, Format::f32, stream.device());
  const float* values = data.data<float>();
  const auto body = [&](sim::Thread& me) {
    sim::count_global(me, values + me.index, 4, false);            // all of 256 bytes
    sim::count_global(me, values + 1024 + 8 * me.index, 4, true);  // one of every sector
    if (me.index == 0) {
      sim::Agent engine = me;
      engine.proxy = sim::Proxy::async;
      sim::count_global(engine, values, 16384, false);
    }
  };
  run(stream, {.grid = {3}, .block = {64}}, body);
  const SimulatorCounters& counters = simulator_report(stream).counters;
  EXPECT_EQ(counters.global_bytes_read, 3u * 256);
  EXPECT_EQ(counters.global_bytes_written, 3u * 256);
  EXPECT_EQ(counters.tma_bytes_read, 3u * 16384);
  EXPECT_EQ(counters.hbm_bytes, 16384u);
  // Each launch counts its own.
  run(stream, {.grid = {1}, .block = {64}}, body);
  EXPECT_EQ(simulator_report(stream).counters.hbm_bytes, 2u * 16384);
}

TEST(Counters, OffCountsNothing) {
  Stream stream = simulated(Arch::sm_90a, {.counters = false});
  run(stream, {.block = {64}}, [](sim::Thread& me) {
    sim::count_shared(me, me.lane, 4, "ld.shared.b32", Site::current());
    sim::count_mufu();
    sim::barrier_sync(0, 0, Site::current());
  });
  EXPECT_EQ(simulator_report(stream).counters.mufu, 0u);
  EXPECT_TRUE(simulator_report(stream).counters.shared_sites.empty());
}

TEST(Counters, RatesOfEveryKind) {
  const sim::Chip& hopper = sim::chip(Arch::sm_90a);
  EXPECT_EQ(sim::tensor_rate(hopper, "wgmma.bf16"), 2048u);
  EXPECT_EQ(sim::tensor_rate(hopper, "wgmma.e4m3"), 4096u);
  EXPECT_EQ(sim::tensor_rate(sim::chip(Arch::sm_100a), "tcgen05.mma.mxf4nvf4"), 16384u);
  EXPECT_EQ(sim::tensor_rate(sim::chip(Arch::sm_80), "mma.sync.s8"), 2048u);
  // 989 TFLOPS of the data sheet.
  EXPECT_NEAR(2 * 2048 * hopper.sm_count * hopper.rates.clock_ghz * 1e9, 989e12, 1e12);
}

}  // namespace
}  // namespace halftone::test

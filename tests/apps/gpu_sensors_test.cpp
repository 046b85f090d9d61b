// What is told of a GPU while it works, by a library in place of NVML.
#include "measure/gpu_sensors.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

namespace halftone {
namespace {

TEST(GpuSensors, MediansOverTheTimeOfTheWork) {
  const GpuSensors sensors(FAKE_NVML, "0000:19:00.0");
  EXPECT_DOUBLE_EQ(sensors.power_limit_watts(), 700);
  const GpuState once = sensors.during([] {});
  EXPECT_GT(once.clock_ghz, 0) << "one sample at least";
  const GpuState state =
      sensors.during([] { std::this_thread::sleep_for(std::chrono::milliseconds(150)); });
  EXPECT_LT(state.clock_ghz, once.clock_ghz - 0.1) << "the middle of several samples";
  EXPECT_DOUBLE_EQ(state.watts, 650.5);
}

TEST(GpuSensors, NothingIsKnownWithoutALibraryOrADevice) {
  for (const auto& [library, bus] : {std::pair{"no_such_library.so", "0000:19:00.0"},
                                     std::pair{FAKE_NVML, "none"}, std::pair{FAKE_NVML, ""}}) {
    const GpuSensors sensors(library, bus);
    bool worked = false;
    EXPECT_EQ(sensors.during([&] { worked = true; }).clock_ghz, 0);
    EXPECT_TRUE(worked);
    EXPECT_EQ(sensors.power_limit_watts(), 0);
  }
}

TEST(GpuSensors, WhatTheWorkThrowsArrives) {
  const GpuSensors sensors(FAKE_NVML, "0000:19:00.0");
  EXPECT_THROW(sensors.during([] { throw std::runtime_error("work"); }), std::runtime_error);
}

}  // namespace
}  // namespace halftone

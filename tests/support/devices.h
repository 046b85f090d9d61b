// Tests of operations that every device runs: the simulated GPUs of two generations, in strict
// mode, and the first CUDA device where there is one.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "halftone/simulator.h"
#include "halftone/stream.h"
#include "support/compare.h"
#include "support/draw.h"
#include "support/sanitized.h"
#include "support/tolerance.h"

namespace halftone::test {

class OnDevice : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string reason;
    const bool cuda = std::string_view(GetParam()).starts_with("cuda");
    if (cuda && cuda_device_count(&reason) == 0) GTEST_SKIP() << reason;
    device = Device::parse(GetParam());
  }
  bool simulated() const { return device.kind() == Device::Kind::simulator; }
  // Of a simulated device: strict, launches with findings throw.
  Stream stream(SimulatorOptions options = {}) const {
    Stream made(device, 1);
    options.severity = SimulatorOptions::Severity::strict;
    if (simulated()) configure(made, options);
    return made;
  }
  // body(draw, seed) for 1,000 problems on a GPU and a few on a simulated one, up to the first that
  // fails.
  template <class Body>
  void random_problems(const Body& body) const {
    for (uint64_t seed = 1; seed <= (!simulated() ? 1000 : kSanitized ? 10 : 40); ++seed) {
      SCOPED_TRACE("problem " + std::to_string(seed));
      Draw draw(seed);
      body(draw, seed);
      if (HasFailure()) return;
    }
  }
  // Runs body(stream) under adversarial schedules: the same bits of `result` and no conflict of
  // banks, whatever the order. Once on a GPU.
  template <class Body>
  void expect_any_order(const Tensor& result, const Body& body) const {
    Tensor first;
    for (uint64_t seed = 1; seed <= (!simulated() ? 1 : kSanitized ? 2 : 8); ++seed) {
      Stream s = stream({.schedule = SimulatorOptions::Schedule::adversarial, .seed = seed});
      body(s);
      s.synchronize();
      const Tensor now = result.to(Device::cpu()).contiguous_copy();
      if (!first.defined()) first = now;
      ASSERT_TRUE(same_bits(now, first)) << "seed " << seed;
      if (!simulated()) continue;
      const SimulatorReport& report = simulator_report(s);
      EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal);
    }
  }

  Device device;
};

// A copy on the device that begins `elements` behind an allocation and has rows `gap` elements
// apart: what accesses of 16 bytes cannot take.
inline Tensor shifted(const Tensor& rows, const Device& device, int64_t elements, int64_t gap) {
  const int64_t pitch = rows.size(1) + gap;
  const int64_t count = elements + rows.size(0) * pitch;
  const int64_t bytes = packed_bytes(rows.format(), 1);
  const Tensor host = Tensor::zeros({count}, rows.format());
  for (int64_t r = 0; r < rows.size(0); ++r) {
    std::memcpy(host.data<char>() + (elements + r * pitch) * bytes,
                rows.data<char>() + r * rows.stride(0) * bytes,
                static_cast<size_t>(rows.size(1) * bytes));
  }
  const auto moved = std::make_shared<Tensor>(host.to(device));
  return Tensor::share(moved, moved->data<char>() + elements * bytes, rows.shape(), {pitch, 1},
                       rows.format(), device);
}
// Its rows on the CPU.
inline Tensor gathered(const Tensor& x) {
  if (x.contiguous()) return x.to(Device::cpu());
  const Tensor flat =
      Tensor::view(x.data(), {(x.size(0) - 1) * x.stride(0) + x.size(1)}, x.format(), x.device())
          .to(Device::cpu());
  return Tensor::view(flat.data(), x.shape(), x.strides(), x.format()).contiguous_copy();
}

inline std::string device_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

#if defined(HALFTONE_SANITIZED)  // one simulated GPU shows what sanitizers can see
#define HALFTONE_ON_DEVICES(Suite)                                                   \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::Values("sim:sm_80", "cuda:0"), \
                           ::halftone::test::device_name)
#else
#define HALFTONE_ON_DEVICES(Suite)                                                                 \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::Values("sim:sm_80", "sim:sm_90a", "cuda:0"), \
                           ::halftone::test::device_name)
#endif

}  // namespace halftone::test

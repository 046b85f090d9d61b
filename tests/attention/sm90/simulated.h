// The simulated sm_90a, for the tests of its attention kernels.
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "halftone/simulator.h"
#include "halftone/stream.h"

namespace halftone::test {

inline Stream hopper(const SimulatorOptions& options = {}) {
  Stream stream(Device::simulator(Arch::sm_90a));
  configure(stream, options);
  return stream;
}

// body(stream) runs a kernel and gives its results. No race, missing fence or bank
// conflict under any schedule; and the same bits.
template <class Body>
void expect_strict_in_any_order(const Body& body) {
#if defined(HALFTONE_SANITIZED)
  constexpr uint64_t kSeeds = 2;
#else
  constexpr uint64_t kSeeds = 20;
#endif
  std::vector<float> first;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Stream stream = hopper({.severity = SimulatorOptions::Severity::strict,
                            .numerics = SimulatorOptions::Numerics::fast,
                            .schedule = SimulatorOptions::Schedule::adversarial,
                            .seed = seed,
                            .throws = false});
    const std::vector<float> values = body(stream);
    const SimulatorReport report = simulator_report(stream);
    ASSERT_TRUE(report.clean()) << "seed " << seed << "\n" << to_string(report);
    EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal);
    if (first.empty()) first = values;
    ASSERT_EQ(values, first) << "seed " << seed;
  }
}

}  // namespace halftone::test

// Every step on the simulator: right, clean under many schedules, and without bank conflicts from
// the fourth on.
#include <cstddef>

#include <gtest/gtest.h>

#include "halftone/error.h"
#include "halftone/simulator.h"
#include "ladder.h"
#include "matrices.h"

namespace halftone::ladder {
namespace {

using Options = SimulatorOptions;

struct Size {
  int64_t m, n, k;
};

struct Outcome {
  std::vector<uint16_t> c;
  SimulatorReport report;
};

Outcome simulate(int step, const Size& size, Arch arch, const Options& options, int sms = 0) {
  const Device device = Device::simulator(arch);
  Stream stream(device);
  configure(stream, options);
  const auto on_device = [&](const std::vector<uint16_t>& values, int64_t rows, int64_t columns) {
    return Tensor::copy_of(values.data(), values.size() * 2, {rows, columns}, Format::bf16)
        .to(device);
  };
  const Tensor a = on_device(random_matrix(size.m, size.k, 1), size.m, size.k);
  const Tensor b = on_device(random_matrix(size.n, size.k, 2), size.n, size.k);
  const Tensor c =
      on_device(std::vector<uint16_t>(size_t(size.m * size.n), 0xffff), size.m, size.n);
  multiply(step, a, b, c, stream, {.multiprocessors = sms});
  const Tensor back = c.to(Device::cpu());
  const auto* values = back.data<uint16_t>();
  return {{values, values + size.m * size.n}, simulator_report(stream)};
}

Distance distance_of(const std::vector<uint16_t>& c, const Size& size) {
  return distance(random_matrix(size.m, size.k, 1), random_matrix(size.n, size.k, 2), c, size.m,
                  size.n, size.k, size.m);
}

class Ladder : public testing::TestWithParam<int> {
 protected:
  const Step& step() const { return steps()[static_cast<size_t>(GetParam() - 1)]; }
};
INSTANTIATE_TEST_SUITE_P(Steps, Ladder, testing::Range(1, 10),
                         [](const auto& info) { return "step" + std::to_string(info.param); });

// Partial tiles in all three directions, several tiles, a K shorter than one stage, one element.
TEST_P(Ladder, IsRightInExactArithmetic) {
#ifdef HALFTONE_SANITIZED
  const std::vector<Size> sizes = {{72, 136, 88}, {1, 8, 8}};
#else
  const std::vector<Size> sizes = {{72, 136, 88}, {1, 8, 8}, {136, 264, 200}};
#endif
  for (const Size& size : sizes) {
    const Outcome run = simulate(GetParam(), size, Arch::sm_90a, {});
    EXPECT_TRUE(run.report.clean()) << to_string(run.report, false);
    const Distance d = distance_of(run.c, size);
    EXPECT_EQ(d.unwritten, 0);
    EXPECT_LE(d.worst, 1.0) << "row " << d.row << " column " << d.column;
  }
}

TEST_P(Ladder, RunsOnItsFirstArchitecture) {
  if (step().arch == Arch::sm_90a) GTEST_SKIP() << "the tests above run there";
  const Size size{72, 136, 88};
  const Outcome run = simulate(GetParam(), size, step().arch, {});
  EXPECT_TRUE(run.report.clean()) << to_string(run.report, false);
  EXPECT_LE(distance_of(run.c, size).worst, 1.0);
}

// Step 9 with one cluster for all tiles, so that the ring runs on from tile to tile.
TEST_P(Ladder, IsCleanUnderAdversarialSchedules) {
  // The rings of step 6 and up go round more than once.
  const Size size = GetParam() == 1   ? Size{24, 24, 16}
                    : GetParam() <= 5 ? Size{136, 136, 264}
                                      : Size{136, 264, 328};
#ifdef HALFTONE_SANITIZED
  const uint64_t seeds = 1;
#else
  const uint64_t seeds = 20;
#endif
  std::vector<uint16_t> first;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Options options{.severity = Options::Severity::strict,
                          .numerics = Options::Numerics::fast,
                          .schedule = Options::Schedule::adversarial,
                          .seed = seed,
                          .throws = false};
    const Outcome run = simulate(GetParam(), size, Arch::sm_90a, options, 2);
    ASSERT_TRUE(run.report.clean()) << "seed " << seed << "\n" << to_string(run.report, false);
    if (first.empty()) {
      first = run.c;
      EXPECT_LE(distance_of(first, size).worst, 1.0);
    }
    ASSERT_EQ(run.c, first) << "another schedule gives other bits, seed " << seed;
  }
}

TEST_P(Ladder, HasNoBankConflictsFromStepFour) {
  const Outcome run = simulate(GetParam(), {136, 264, 136}, Arch::sm_90a, {});
  const SimulatorCounters& c = run.report.counters;
  if (GetParam() == 3) {
    EXPECT_GT(c.shared_wavefronts, 2 * c.shared_ideal) << "step 3 is there to show conflicts";
  } else if (GetParam() != 1) {
    EXPECT_EQ(c.shared_wavefronts, c.shared_ideal) << to_string(run.report);
  }
}

// The bound notices one product left out and two steps of bf16.
TEST(LadderBound, NoticesSmallErrors) {
  const Size size{72, 136, 88};
  const Outcome run = simulate(9, size, Arch::sm_90a, {});
  auto c = run.c;
  c[5000] += 2;
  EXPECT_GT(distance_of(c, size).worst, 1.0);
  const Size shorter{72, 136, 80};
  const auto a = random_matrix(size.m, size.k, 1), b = random_matrix(size.n, size.k, 2);
  std::vector<uint16_t> cut_a, cut_b;  // the same matrices without their last 8 columns
  for (int64_t i = 0; i < size.m * size.k; ++i)
    if (i % size.k < shorter.k) cut_a.push_back(a[size_t(i)]);
  for (int64_t i = 0; i < size.n * size.k; ++i)
    if (i % size.k < shorter.k) cut_b.push_back(b[size_t(i)]);
  EXPECT_GT(distance(cut_a, cut_b, run.c, shorter.m, shorter.n, shorter.k, shorter.m).worst, 1.0);
}

TEST(LadderErrors, NameTheArgument) {
  const Device device = Device::simulator(Arch::sm_90a);
  Stream stream(device);
  const Tensor a = Tensor::zeros({16, 24}, Format::bf16, device);
  const Tensor odd = Tensor::zeros({16, 20}, Format::bf16, device);
  const Tensor c = Tensor::zeros({16, 16}, Format::bf16, device);
  const auto message = [&](int step, const Tensor& x, const Tensor& y, const Tensor& z) {
    try {
      multiply(step, x, y, z, stream);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message(9, odd, odd, c).find("20 columns"), std::string::npos);
  EXPECT_NE(message(9, a, odd, c).find("multiple of 8"), std::string::npos);
  EXPECT_NE(message(9, a, a, a).find("[16, 16]"), std::string::npos);
  EXPECT_NE(message(10, a, a, c).find("1 to 9"), std::string::npos);
}

}  // namespace
}  // namespace halftone::ladder

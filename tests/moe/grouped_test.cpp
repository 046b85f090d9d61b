// Products of groups of rows, on the CPU and on simulated GPUs.
#include "halftone/grouped_matmul.h"
#include "moe/gpu_cases.h"

namespace halftone::test {
namespace {

using F = Format;
using Options = SimulatorOptions;

const std::vector<WeightSpec> kSpecs = {{F::bf16},
                                        {F::fp8_e4m3, true, {F::f32, 1, 0}},
                                        {F::fp8_e4m3, true, {F::f32, 128, 128}},
                                        {F::mxfp8, true, {F::ue8m0, 1, 32}},
                                        {F::int8, true, {F::f16, 1, 64}},
                                        {F::mxfp4, true, {F::ue8m0, 1, 32}},
                                        {F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true}};

Tensor counts_of(const std::vector<int32_t>& counts) {
  return Tensor::from<int32_t>(counts, {static_cast<int64_t>(counts.size())}, F::i32);
}

struct Grouped {
  Tensor x, counts, weight;
  std::vector<Weight> matrices;
  bool masked;
  int64_t first(int64_t group) const {
    if (masked) return group * (x.size(0) / counts.size(0));
    int64_t sum = 0;
    for (int64_t g = 0; g < group; ++g) sum += counts.data<int32_t>()[g];
    return sum;
  }
};

Grouped make(const WeightSpec& spec, const std::vector<int32_t>& counts, int64_t rows, int64_t n,
             int64_t k, bool masked) {
  Grouped g{random_tensor({rows, k}, F::bf16, 5), {}, {}, {}, masked};
  const auto groups = static_cast<int64_t>(counts.size());
  g.counts = counts_of(counts);
  for (int64_t i = 0; i < groups; ++i) {
    g.matrices.push_back(random_weight(spec, n, k, static_cast<uint64_t>(20 + i)));
  }
  const auto at = [&](bool scales) {
    return [&g, scales](int64_t e, int64_t i) {
      const Tensor& m = g.matrices[static_cast<size_t>(e)].tensor;
      return std::pair(scales ? m.scales() : m, i);
    };
  };
  g.weight = stacked(groups, n, k, spec.format, at(false));
  if (spec.scaled) {
    const Tensor& one = g.matrices[0].tensor;
    const Tensor scales =
        stacked(groups, one.scales().size(0), one.scales().size(1), spec.scaling.format, at(true));
    g.weight = g.weight.quantized(spec.scaling, scales, one.tensor_scale());
  }
  return g;
}

// Out of f32, filled before with what rows of no group keep.
std::vector<float> product(const Grouped& g, Stream& stream) {
  const Device& device = stream.device();
  GroupedProblem p;
  p.groups = g.counts.size(0), p.rows = g.x.size(0), p.n = g.weight.size(1), p.k = g.x.size(1);
  p.masked = g.masked;
  p.weight = g.weight.format(), p.scaled = g.weight.has_scales();
  if (p.scaled) p.scaling = g.weight.scaling();
  p.out = F::f32;
  const std::vector<float> before(static_cast<size_t>(p.rows * p.n), -7);
  const Tensor out = Tensor::from<float>(before, {p.rows, p.n}, F::f32).to(device);
  run(plan(p, device), {g.x.to(device), g.counts.to(device), g.weight.to(device), out}, stream);
  stream.synchronize();
  return to_floats(out.to(Device::cpu()));
}

Expected expected(const Grouped& g) {
  const int64_t rows = g.x.size(0), n = g.weight.size(1), k = g.x.size(1);
  const std::vector<float> xs = to_floats(g.x);
  Expected e;
  e.values.assign(static_cast<size_t>(rows * n), -7);
  e.magnitudes.assign(e.values.size(), 0);
  for (int64_t i = 0; i < g.counts.size(0); ++i) {
    for (int64_t r = g.first(i); r < g.first(i) + g.counts.data<int32_t>()[i]; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t l = 0; l < k; ++l) {
          const double product =
              xs[static_cast<size_t>(r * k + l)] *
              g.matrices[static_cast<size_t>(i)].values[static_cast<size_t>(j * k + l)];
          sum += product, magnitude += std::abs(product);
        }
        e.values[static_cast<size_t>(r * n + j)] = static_cast<float>(sum);
        e.magnitudes[static_cast<size_t>(r * n + j)] =
            one_chain_roundings(k) * 0x1p-24 * magnitude + 0x1p-24 * std::abs(sum);
      }
    }
  }
  return e;
}

// Both layouts, groups without rows, with one and with more than a part, a full place.
TEST(GroupedMatmul, EveryFormatAndLayout) {
  const int64_t n = 136, k = 256;
  for (const WeightSpec& spec : kSpecs) {
    for (const bool masked : {false, true}) {
      SCOPED_TRACE(concat(label(spec), masked ? " masked" : " contiguous"));
      const Grouped g = make(spec, {0, 33, 1, 20}, masked ? 132 : 60, n, k, masked);
      const Expected e = expected(g);
      for (const Device& device :
           {Device::cpu(), Device::simulator(Arch::sm_80), Device::simulator(Arch::sm_90a)}) {
        SCOPED_TRACE(device.name());
        Stream stream(device);
        EXPECT_TRUE(within(product(g, stream), e.values, e.magnitudes));
      }
      Grouped wrong = g;  // a row more of the last group is seen
      wrong.counts = counts_of({0, 33, 1, 21});
      Stream stream;
      EXPECT_FALSE(within(product(wrong, stream), e.values, e.magnitudes));
    }
  }
}

TEST(GroupedMatmul, RunsOnWgmma) {
  GroupedProblem p;
  p.groups = 4, p.rows = 1024, p.n = 4096, p.k = 7168, p.masked = true;
  const std::string kernel = describe(plan(p, Device::simulator(Arch::sm_90a)));
  EXPECT_NE(kernel.find("4 masked groups of 1024 rows"), std::string::npos) << kernel;
  EXPECT_NE(kernel.find("tiles of 128 x 256"), std::string::npos) << kernel;
}

TEST(GroupedMatmul, StrictUnderAdversarialSchedules) {
  for (const bool masked : {false, true}) {
    const Grouped g = make(kSpecs[2], {3, 0, 17}, masked ? 60 : 24, 128, 256, masked);
    std::vector<float> first;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      Stream stream(Device::simulator(Arch::sm_90a));
      configure(stream, {.severity = Options::Severity::strict,
                         .numerics = Options::Numerics::fast,
                         .schedule = Options::Schedule::adversarial,
                         .seed = seed,
                         .throws = false});
      const std::vector<float> y = product(g, stream);
      const SimulatorReport report = simulator_report(stream);
      ASSERT_TRUE(report.clean()) << to_string(report);
      EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal);
      if (first.empty()) first = y;
      ASSERT_EQ(y, first) << "seed " << seed;
    }
  }
}

TEST(GroupedMatmul, Errors) {
  const WeightSpec bf16{F::bf16};
  for (const Device& device : {Device::cpu(), Device::simulator(Arch::sm_90a)}) {
    Stream stream(device);
    expect_error(
        [&] {
          product(make(bf16, {3, -1}, 20, 16, 16, true), stream);
        },
        {"counts[1] is -1", "room for 10 rows"});
    expect_error(
        [&] {
          product(make(bf16, {3, 11}, 20, 16, 16, true), stream);
        },
        {"counts[1] is 11", "room for 10 rows"});
    expect_error(
        [&] {
          product(make(bf16, {12, 12}, 20, 16, 16, false), stream);
        },
        {"is 12", "room"});
  }
  GroupedProblem p;
  p.groups = 3, p.rows = 10, p.n = p.k = 16, p.masked = true;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("multiple of their number, 3"),
            std::string::npos);
  p.masked = false, p.x = F::int8;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("x is int8"), std::string::npos);
  const Tensor y = grouped_matmul(Tensor::from({1, 2, 3}, {3, 1}), counts_of({1, 1}),
                                  Tensor::from({2, 5}, {2, 1, 1}));
  EXPECT_EQ(to_floats(y), (std::vector<float>{2, 10, 0}));
}

}  // namespace
}  // namespace halftone::test

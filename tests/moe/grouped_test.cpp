// Products of groups of rows, on the CPU and on simulated GPUs.
#include "moe/grouped_cases.h"
#include "support/sanitized.h"

namespace halftone::test {
namespace {

using F = Format;
using Options = SimulatorOptions;

// Both layouts, groups without rows, with one and with more than a part, a full place.
TEST(GroupedMatmul, EveryFormatAndLayout) {
  const std::vector<Device> devices = {Device::cpu(), Device::simulator(Arch::sm_80),
                                       Device::simulator(Arch::sm_90a)};
  for (const WeightSpec& spec : some(kGroupedSpecs, 3)) {
    for (const bool masked : {false, true}) expect_groups(devices, spec, masked);
  }
}

TEST(GroupedMatmul, RunsOnWgmma) {
  GroupedProblem p;
  p.groups = 4, p.rows = 1024, p.n = 4096, p.k = 7168, p.masked = true;
  const std::string kernel = describe(plan(p, Device::simulator(Arch::sm_90a)));
  EXPECT_NE(kernel.find("4 masked groups of 1024 rows"), std::string::npos) << kernel;
  EXPECT_TRUE(kernel.starts_with("gemm_sm90_mixed: ")) << kernel;
  EXPECT_NE(kernel.find("tiles of 128 x 256"), std::string::npos) << kernel;
}

TEST(GroupedMatmul, StrictUnderAdversarialSchedules) {
  for (const bool masked : {false, true}) {
    const Grouped g = grouped(kGroupedSpecs[2], {3, 0, 17}, masked ? 60 : 24, 128, 256, masked);
    std::vector<float> first;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      Stream stream(Device::simulator(Arch::sm_90a));
      configure(stream, {.severity = Options::Severity::strict,
                         .numerics = Options::Numerics::fast,
                         .schedule = Options::Schedule::adversarial,
                         .seed = seed,
                         .throws = false});
      const std::vector<float> y = grouped_product(g, stream);
      const SimulatorReport report = simulator_report(stream);
      ASSERT_TRUE(report.clean()) << to_string(report);
      EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal);
      if (first.empty()) first = y;
      ASSERT_EQ(y, first) << "seed " << seed;
    }
  }
}

// FP8 by FP8 with x as the M operand: groups that fill a tile of 256 rows, end within a
// warp's or a warpgroup's, have rows for one warpgroup alone.
TEST(GroupedMatmul, Fp8ManyRows) {
  for (const bool masked : {false, true}) {
    const std::vector<int32_t> counts = {0, 300, 64, 131};
    const Grouped g = grouped(kGroupedSpecs[2], counts, masked ? 1200 : 500, 264, 256, masked);
    const auto rounded = parse_quantization("fp8_1x128");
    Stream cpu, stream(Device::simulator(Arch::sm_90a));
    configure(stream, {.severity = Options::Severity::strict, .throws = false});
    const std::vector<float> want = grouped_product(g, cpu, F::f32, rounded);
    Grouped given = g;
    given.x = quantize(g.x, rounded);
    for (const F out : {F::f32, F::bf16}) {
      const std::vector<float> got = grouped_product(g, stream, out, rounded);
      ASSERT_TRUE(simulator_report(stream).clean()) << to_string(simulator_report(stream));
      EXPECT_EQ(grouped_product(given, stream, out), got);
      double error = 0, norm = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        if (want[i] == -7) {
          ASSERT_EQ(got[i], -7) << "row " << i / 264 << " out " << name(out);
        }
        error += (got[i] - want[i]) * (got[i] - want[i]), norm += want[i] * want[i];
      }
      EXPECT_LT(error, (out == F::f32 ? 1e-6 : 1e-5) * norm) << name(out) << error / norm;
    }
  }
}

// x given quantised: the bits of x that is quantised to these values on the way.
TEST(GroupedMatmul, XMayBeQuantised) {
  for (const size_t spec : {size_t{0}, size_t{2}}) {
    for (const char* rounding : some<const char*>({"fp8_1x128", "fp8_row", "mxfp8", "int8"})) {
      for (const bool masked : {false, true}) {
        if (kSanitized && masked != (spec == 0)) continue;
        const Grouped plain =
            grouped(kGroupedSpecs[spec], {0, 70, 1, 20}, masked ? 280 : 100, 136, 256, masked);
        const QuantizeOptions options = parse_quantization(rounding);
        Grouped given = plain, wrong = plain;
        given.x = quantize(plain.x, options);
        wrong.x = quantize(random_tensor(plain.x.shape(), F::bf16, 6), options);
        for (const Device& device :
             {Device::cpu(), Device::simulator(Arch::sm_80), Device::simulator(Arch::sm_90a)}) {
          SCOPED_TRACE(concat(label(kGroupedSpecs[spec]), " x ", rounding, " ", device.name()));
          Stream stream(device);
          const std::vector<float> want = grouped_product(plain, stream, F::f32, options);
          EXPECT_EQ(grouped_product(given, stream), want);
          EXPECT_NE(grouped_product(wrong, stream), want);
        }
      }
    }
  }
}

TEST(GroupedMatmul, Errors) {
  const WeightSpec bf16{F::bf16};
  for (const Device& device : {Device::cpu(), Device::simulator(Arch::sm_90a)}) {
    Stream stream(device);
    expect_error(
        [&] {
          grouped_product(grouped(bf16, {3, -1}, 20, 16, 16, true), stream);
        },
        {"counts[1] is -1", "room for 10 rows"});
    expect_error(
        [&] {
          grouped_product(grouped(bf16, {3, 11}, 20, 16, 16, true), stream);
        },
        {"counts[1] is 11", "room for 10 rows"});
    expect_error(
        [&] {
          grouped_product(grouped(bf16, {12, 12}, 20, 16, 16, false), stream);
        },
        {"is 12", "room"});
  }
  GroupedProblem p;
  p.groups = 3, p.rows = 10, p.n = p.k = 16, p.masked = true;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("multiple of their number, 3"),
            std::string::npos);
  p.masked = false, p.x = F::int4;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("x is int4"), std::string::npos);
  p.x = F::mxfp8;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("without scales"), std::string::npos);
  p.x = F::fp8_e4m3, p.x_scaled = true, p.x_scaling = {F::f32, 1, 128};
  const Tensor x = quantize(random_tensor({10, 16}, F::bf16, 1), parse_quantization("fp8_row"));
  expect_error(
      [&] {
        Stream stream(Device::cpu());
        run(plan(p, Device::cpu()),
            {x, counts_of({1, 2, 3}), Tensor::zeros({3, 16, 16}, F::bf16),
             Tensor::zeros({10, 16}, F::bf16)},
            stream);
      },
      {"x has other scales"});
  const Tensor y = grouped_matmul(Tensor::from({1, 2, 3}, {3, 1}), counts_of({1, 1}),
                                  Tensor::from({2, 5}, {2, 1, 1}));
  EXPECT_EQ(to_floats(y), (std::vector<float>{2, 10, 0}));
}

}  // namespace
}  // namespace halftone::test

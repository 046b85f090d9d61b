// The small-M GEMMs of 8- and 4-bit weights on a simulated sm_90a.
#include <array>
#include <cmath>

#include "matmul/gpu_cases.h"
#include "ops/gemm/sm90/small_m/launch.h"
#include "support/sanitized.h"

namespace halftone::test {
namespace {

using F = Format;

const WeightSpec kBf16{F::bf16};
const WeightSpec kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};
const WeightSpec kMxfp8{F::mxfp8, true, {F::ue8m0, 1, 32}};
const WeightSpec kMxfp4{F::mxfp4, true, {F::ue8m0, 1, 32}};
// Every weight type and scale mode.
const std::vector<WeightSpec> kSpecs = {{F::fp8_e4m3, true, {F::f32, 1, 0}},
                                        {F::fp8_e4m3, true, {F::f32, 128, 128}},
                                        {F::fp8_e4m3, true, {F::bf16, 1, 256}},
                                        kMxfp8,
                                        {F::fp8_e5m2, true, {F::f32, 1, 0}},
                                        {F::fp8_e5m2, true, {F::f32, 128, 128}},
                                        {F::int8, true, {F::f32, 1, 0}},
                                        {F::int8, true, {F::f16, 1, 128}},
                                        kNvfp4,
                                        kMxfp4,
                                        {F::int4, true, {F::f32, 1, 64}},
                                        {F::int4, true, {F::bf16, 1, 32}},
                                        {F::int4, true, {F::f16, 1, 128}}};

bool in_order(const GpuCase& c, const Device& device) {
  return kernel_of(c, device).starts_with("gemm_sm90_small_m_w");
}

// Partial tiles; without split-K, and with uneven ranges of K.
TEST(MatmulSm90SmallM, EveryFormat) {
  Stream stream(Device::simulator(Arch::sm_90a));
  uint64_t seed = 1;
  for (const WeightSpec& w : some(kSpecs, 3)) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{9, 40, 512}, {17, 130, 1536}, {32, 128, 5 * 512}}) {
      const GpuCase c{w, kBf16, m, n, k, m == 17 ? F::bf16 : F::f32};
      ASSERT_TRUE(in_order(c, stream.device())) << label(w);
      expect_product(stream, c, ++seed);
    }
  }
  const GpuCase wide{kNvfp4, kBf16, 53, 130, 5 * 256};
  ASSERT_TRUE(in_order(wide, stream.device()));
  expect_product(stream, wide, 3);
}

// Fewer rows than a tile has columns for, and W that is large enough for it.
TEST(MatmulSm90SmallM, FewRowsOfLargeMatrices) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t n = 4100, k = 8192;
  uint64_t seed = 1;
  for (const WeightSpec& w : some(std::vector{kSpecs[0], kNvfp4}, 1)) {
    const GpuCase c{w, kBf16, seed == 1 ? 2 : 7, n, k};
    ASSERT_TRUE(in_order(c, stream.device())) << label(w);
    expect_product(stream, c, ++seed);
  }
  for (const GpuCase& c : {GpuCase{kNvfp4, kBf16, 1, n, k}, {kNvfp4, kBf16, 8, n - 5, k}}) {
    EXPECT_FALSE(in_order(c, stream.device())) << c.m << " " << c.n;
  }
  if (kSanitized) return;
  // A row has the bits that it has among more, in gated epilogues too.
  const Tensor x = random_tensor({9, k}, F::bf16, 3);
  const Tensor w = random_weight(kSpecs[1], 4096, k, 4).tensor;
  MatmulOptions o;
  o.bias = random_tensor({4096}, F::f32, 5), o.gated = GatedActivation::swiglu();
  const std::vector<float> all = to_floats(matmul_on(stream, x, w, o));
  const std::vector<float> few =
      to_floats(matmul_on(stream, x.slice(0, 0, 3).contiguous_copy(), w, o));
  EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin()));
}

// No race, no conflict of banks, whatever the order; and the same bits.
void expect_strict(const WeightSpec& spec, int64_t m, int64_t n, int64_t k) {
  constexpr uint64_t kSeeds = kSanitized ? 1 : 2;
  SCOPED_TRACE(concat(label(spec), " ", m));
  const Tensor x = random_weight(kBf16, m, k, 3).tensor;
  const Tensor w = random_weight(spec, n, k, 4).tensor;
  std::vector<float> first;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Stream stream(Device::simulator(Arch::sm_90a));
    configure_strict(stream, seed);
    MatmulOptions options;
    options.out = F::f32;
    const std::vector<float> y = to_floats(matmul_on(stream, x, w, options));
    const SimulatorReport report = simulator_report(stream);
    ASSERT_TRUE(report.clean()) << to_string(report);
    EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal) << to_string(report);
    if (first.empty()) first = y;
    ASSERT_EQ(y, first) << "seed " << seed;
  }
}

// Every stage is used again.
TEST(MatmulSm90SmallM, StrictUnderAdversarialSchedules) {
  for (const WeightSpec& spec : some(kSpecs, 3)) {
    expect_strict(spec, 12, 40, 8 * 4 * 512);
    expect_strict(spec, 30, 140, 3072);
  }
  expect_strict(kNvfp4, 44, 140, 2048);
}

// Codes that are no number make their row of W, and no other, NaN.
TEST(MatmulSm90SmallM, NotANumber) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t m = 17, n = 256, k = 512;
  for (const WeightSpec& spec : {kSpecs[0], kSpecs[1], kMxfp8, kSpecs[4], kSpecs[5]}) {
    const Tensor x = random_tensor({m, k}, F::bf16, 3, Data::normal);
    const Tensor w = random_weight(spec, n, k, 4).tensor;
    for (int64_t j = 0; j < n; j += 3) {
      w.data<uint8_t>()[j * k + j / 3 * 37 % k] = j % 2 == 0 ? 0x7f : 0xff;
    }
    const std::vector<float> y = to_floats(matmul_on(stream, x, w));
    for (int64_t i = 0; i < m * n; ++i) {
      ASSERT_EQ(std::isnan(y[static_cast<size_t>(i)]), i % n % 3 == 0) << label(spec) << " " << i;
    }
  }
}

// A GEMM of a weight with large UE8M0 scales.
auto within_bounds(Stream& stream, const Weight& x, const Weight& w, int64_t m, int64_t n,
                   int64_t k) {
  const std::vector<float> x_values(x.values.begin(), x.values.end());
  const Expected e = expect(x_values, w.values, m, n, k);
  MatmulOptions o;
  o.out = F::f32;
  return within(to_floats(matmul_on(stream, x.tensor, w.tensor, o)), e.values,
                gpu_bounds(e, k, F::f32, 0x1p60, true));
}

// UE8M0 scales that BF16 weights cannot hold.
TEST(MatmulSm90SmallM, ScalesBeyondBf16) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t m = 20, n = 40, k = 1024;
  for (const WeightSpec& spec : {kMxfp4, kMxfp8}) {
    const Weight x = random_weight(kBf16, m, k, 4);
    Weight w = random_weight(spec, n, k, 3);
    auto* scales = w.tensor.scales().data<uint8_t>();
    for (int64_t i = 0; i < n * k / 32; ++i) {
      const int exponent = i % 7 == 0 ? 129 + static_cast<int>(i % 40) : scales[i];
      for (int64_t j = i * 32; j < (i + 1) * 32; ++j) {
        w.values[static_cast<size_t>(j)] *= std::ldexp(1.0, exponent - scales[i]);
      }
      scales[i] = static_cast<uint8_t>(exponent);
    }
    EXPECT_TRUE(within_bounds(stream, x, w, m, n, k)) << label(spec);
  }
}

// A UE8M0 scale beyond BF16 in one row, in either of two stages whose scales share a copy, and
// the largest that is not. All rows of the tile exist: those that do not have powers beyond bf16,
// too.
TEST(MatmulSm90SmallM, OneScaleBeyondBf16) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t m = 9, n = 128, k = 512;
  for (const int exponent : {128, 129, 140}) {
    // Rows that other warps look at.
    for (const auto& [row, place] : {std::pair<int64_t, int64_t>{17, 3}, {50, 11}, {90, 3}}) {
      const Weight x = random_weight(kBf16, m, k, 4);
      Weight w = random_weight(kMxfp4, n, k, 3);
      uint8_t& scale = w.tensor.scales().data<uint8_t>()[row * k / 32 + place];
      for (int64_t j = 0; j < 32; ++j) {
        double& value = w.values[static_cast<size_t>(row * k + place * 32 + j)];
        value *= std::ldexp(1.0, exponent - scale);
      }
      scale = static_cast<uint8_t>(exponent);
      EXPECT_TRUE(within_bounds(stream, x, w, m, n, k)) << exponent << " in row " << row;
    }
  }
}

// How far apart silu(gate) * up may be in two kernels, each of whose sums are within their bounds.
double gated_bound(double gate, double gate_off, double up, double up_off) {
  const double silu = std::abs(gate) / (1 + std::exp(-gate));  // whose slope is below 1.1
  const double off = 1.1 * gate_off * (std::abs(up) + up_off) + silu * up_off;
  return 2 * (off + 0x1p-20 * silu * std::abs(up));
}

// Bias and gates of both orders, as the kernel of more rows makes them.
TEST(MatmulSm90SmallM, EpiloguesLikeOthers) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t k = 1024, m = 65;
  const WeightSpec& runs = kSpecs.back();
  const WeightSpec& short_runs = kSpecs[kSpecs.size() - 2];
  for (const WeightSpec& spec : {kSpecs[1], kNvfp4, kMxfp4, runs, short_runs}) {
    const int64_t n = spec.scaling.block_rows == 128 ? 128 : 136;
    const Weight w = random_weight(spec, 2 * n, k, 5);
    const Tensor x = random_tensor({m, k}, F::bf16, 4);
    const Tensor bias = random_tensor({2 * n}, F::f32, 6);
    Expected e = expect(to_floats(x), w.values, m, 2 * n, k);
    for (size_t i = 0; i < e.values.size(); ++i) {
      const float b = bias.data<float>()[i % static_cast<size_t>(2 * n)];
      e.values[i] += b, e.magnitudes[i] += std::abs(b);
    }
    const std::vector<double> off = gpu_bounds(e, k, F::f32, 10, true);
    for (const bool interleaved : {false, true}) {
      SCOPED_TRACE(concat(label(spec), interleaved ? " interleaved" : ""));
      MatmulOptions o;
      o.out = F::f32, o.bias = bias;
      o.gated = GatedActivation::swiglu(), o.interleaved = interleaved;
      const std::vector<float> all =
          to_floats(by_another_kernel([&] { return matmul_on(stream, x, w.tensor, o); }));
      const std::vector<float> few =
          to_floats(matmul_on(stream, x.slice(0, 0, 32).contiguous_copy(), w.tensor, o));
      for (int64_t i = 0; i < 32 * n; ++i) {
        const int64_t row = i / n * 2 * n, j = i % n;
        const auto gate = static_cast<size_t>(row + (interleaved ? 2 * j : j));
        const size_t up = gate + static_cast<size_t>(interleaved ? 1 : n);
        ASSERT_NEAR(few[static_cast<size_t>(i)], all[static_cast<size_t>(i)],
                    gated_bound(e.values[gate], off[gate], e.values[up], off[up]))
            << i;
      }
    }
  }
}

// Specialised epilogues give the bits of the general one, which results and residuals that
// do not lie on 8 bytes take: in small-M and tiled kernels, with and without split-K.
TEST(MatmulSm90SmallM, SpecialisedEpiloguesGiveTheSameBits) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const Device device = stream.device();
  const int64_t k = 1024, n = 136;
  // Rows with `gap` more elements between them than they have, which begin at element `from`.
  const auto apart = [&](const Tensor& t, int64_t gap, int64_t from) {
    const Tensor all = Tensor::zeros({t.size(0), n + gap}, F::bf16);
    for (int64_t i = 0; i < t.size(0); ++i) {
      std::copy_n(t.data<uint16_t>() + i * n, n, all.data<uint16_t>() + i * (n + gap) + from);
    }
    return all.to(device).slice(1, from, from + n);
  };
  const WeightSpec of_runs{F::int4, true, {F::f32, 1, 64}};
  for (const WeightSpec& spec : some(std::vector{kSpecs[0], kNvfp4, of_runs, kBf16}, 2)) {
    for (const int64_t m : {17, 70}) {
      for (const bool gate : {false, true}) {
        SCOPED_TRACE(concat(label(spec), " ", m, gate ? " gate" : ""));
        const Weight w = random_weight(spec, gate ? 2 * n : n, k, 5);
        MatmulProblem p;
        p.m = m, p.n = n, p.k = k, p.weight = spec.format, p.bias = true;
        p.residual = gate || m == 17;
        p.scaled = spec.scaled, p.scaling = spec.scaling;
        if (gate) p.gated = GatedActivation::swiglu();
        const Tensor x = random_tensor({m, k}, F::bf16, 6).to(device);
        const Tensor bias = random_tensor({gate ? 2 * n : n}, F::f32, 7).to(device);
        const Tensor weight = w.tensor.to(device);
        const Tensor residual = random_tensor({m, n}, F::bf16, 8);
        std::vector<float> first;
        for (const auto& [out_gap, out_from, gap, from] : {std::array<int64_t, 4>{0, 0, 0, 0},
                                                           {4, 4, 8, 4},
                                                           {4, 2, 0, 0},
                                                           {3, 0, 0, 0},
                                                           {0, 0, 4, 1},
                                                           {0, 0, 1, 0}}) {
          SCOPED_TRACE(concat(out_gap, " ", out_from, " ", gap, " ", from));
          const Tensor all = Tensor::zeros({m, n + out_gap}, F::bf16, device);
          const Tensor out = all.slice(1, out_from, out_from + n);
          const Tensor own = p.residual ? apart(residual, gap, from) : Tensor();
          run(plan(p, device), {x, weight, out, bias, own}, stream);
          stream.synchronize();
          const Tensor there = all.to(Device::cpu()).slice(1, out_from, out_from + n);
          const std::vector<float> y = to_floats(there.contiguous_copy());
          if (first.empty()) first = y;
          EXPECT_EQ(y, first);
        }
      }
    }
  }
}

// Horizontally fused GEMMs: the bits of a launch each, with the same split-K factor.
TEST(MatmulSm90SmallM, HorizontallyFused) {
  const Device device = Device::simulator(Arch::sm_90a);
  Stream stream(device);
  configure_strict(stream);
  for (const WeightSpec& spec : kSpecs) {
    SCOPED_TRACE(label(spec));
    const Tensor x = random_tensor({19, 1024}, F::bf16, 3).to(device);
    const SharedX shared(device, spec, x, {130, 24, 128}, {true, true, true});
    ASSERT_TRUE(shared.run_at_once(stream));
    shared.expect_bits_of_runs_apart(stream);
  }
}

TEST(MatmulSm90SmallM, ToleranceBreaksOnSmallErrors) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t m = 9, n = 11, k = 1024;
  for (const WeightSpec& spec : {kSpecs[1], kNvfp4, kSpecs.back()}) {
    SCOPED_TRACE(label(spec));
    const Weight w = random_weight(spec, n, k, 5);
    const Tensor x = random_tensor({m, k}, F::bf16, 6);
    const Expected e = expect(to_floats(x), w.values, m, n, k);
    const auto fits = [&](const Tensor& changed) {
      MatmulOptions o;
      o.out = F::f32;
      return static_cast<bool>(within(to_floats(matmul_on(stream, changed, w.tensor, o)), e.values,
                                      gpu_bounds(e, k, F::f32, 10, true)));
    };
    ASSERT_TRUE(fits(x));
    Tensor wrong = x.contiguous_copy();
    std::swap(wrong.data<uint16_t>()[k - 3], wrong.data<uint16_t>()[k - 4]);
    EXPECT_FALSE(fits(wrong));
    wrong = x.contiguous_copy();
    wrong.data<uint16_t>()[k - 1] = 0;  // the last element of K is skipped
    EXPECT_FALSE(fits(wrong));
  }
}

TEST(MatmulSm90SmallM, RefusesWithTheReason) {
  const auto reason = [](const GpuCase& c) {
    gemm::XSpec x;
    x.format = c.x.format;
    const gemm::GpuWeight w =
        gemm::gpu_weight(x, c.weight.format, c.weight.scaled, c.weight.scaling);
    const gemm::GemmProblem p{
        c.m, c.n, c.k, 0, false, c.weight.format, c.weight.scaled, c.weight.scaling};
    return refuse_sm90_small_m(p, w, gemm::GpuX(x, w, c.k));
  };
  EXPECT_EQ(reason({kNvfp4, kBf16, 32, 64, 1024}), "");
  EXPECT_EQ(reason({kNvfp4, kBf16, 64, 64, 1024}), "");
  EXPECT_NE(reason({kNvfp4, kBf16, 65, 64, 1024}).find("m is 65"), std::string::npos);
  EXPECT_NE(reason({kNvfp4, kBf16, 8, 64, 1024}).find("takes 9 to"), std::string::npos);
  EXPECT_NE(reason({kNvfp4, kBf16, 8, 4095, 8192}).find("takes 9 to"), std::string::npos);
  EXPECT_EQ(reason({kNvfp4, kBf16, 8, 4096, 8192}), "");
  EXPECT_EQ(reason({kNvfp4, kBf16, 2, 4096, 8192}), "");
  EXPECT_NE(reason({kNvfp4, kBf16, 1, 4096, 8192}).find("takes 2 to"), std::string::npos);
  EXPECT_NE(reason({kSpecs[10], kBf16, 8, 4096, 8192}).find("takes 9 to"), std::string::npos);
  EXPECT_NE(reason({kMxfp4, kBf16, 33, 64, 1024}).find("m is 33"), std::string::npos);
  EXPECT_NE(reason({kNvfp4, {F::f32}, 32, 64, 1024}).find("x is not bf16"), std::string::npos);
  EXPECT_NE(reason({kBf16, kBf16, 32, 64, 1024}).find("the weight is bf16"), std::string::npos);
  EXPECT_NE(reason({kMxfp4, kBf16, 32, 64, 1280}).find("multiples of 512"), std::string::npos);
  const WeightSpec zeros{F::int4, true, {F::bf16, 1, 128, ScaleLayout::linear, true}};
  EXPECT_NE(reason({zeros, kBf16, 32, 64, 1024}).find("without zero points"), std::string::npos);
}

}  // namespace
}  // namespace halftone::test

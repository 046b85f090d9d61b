// One row of x on simulated Hopper, by the kernel that has tensor copies for W.
#include <array>
#include <limits>

#include "matmul/gpu_cases.h"
#include "ops/gemm/sm90/gemv/launch.h"
#include "support/sanitized.h"

namespace halftone::test {
namespace {

using F = Format;
using Options = SimulatorOptions;

const WeightSpec kBf16{F::bf16}, kFp8{F::fp8_e4m3, true, {F::f32, 128, 128}};
const WeightSpec kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};
const WeightSpec kMxfp8{F::mxfp8, true, {F::ue8m0, 1, 32}};
const WeightSpec kMxfp4{F::mxfp4, true, {F::ue8m0, 1, 32}};
const WeightSpec kInt4{F::int4, true, {F::f16, 1, 128}};

// Every instance of the kernel.
std::vector<WeightSpec> row_specs() {
  return {kBf16,
          {F::f16},
          kFp8,
          {F::fp8_e4m3},
          {F::fp8_e4m3, true, {F::bf16, 1, 64}},
          {F::fp8_e5m2, true, {F::f32, 1, 0}},
          {F::fp8_e5m2, true, {F::f32, 1, 128}},
          kMxfp8,
          {F::int8, true, {F::f32, 1, 0}},
          {F::int8, true, {F::f16, 1, 128}},
          {F::int8, true, {F::f32, 1, 64}},
          kNvfp4,
          kMxfp4,
          kInt4,
          {F::int4, true, {F::f32, 1, 32}}};
}

GpuCase row_case(const WeightSpec& w, int64_t n, int64_t spans) {
  return {w, kBf16, 1, n, spans * 1024 / bits(w.format)};
}
bool is_row(const GpuCase& c, const Device& device) {
  return kernel_of(c, device).starts_with("gemv_sm90:");
}

// Tiles and stages that do not come out even; fewer spans than warps, and several stages.
TEST(MatmulSm90Gemv, EveryFormat) {
  Stream stream(Device::simulator(Arch::sm_90a));
  std::vector<GpuCase> cases;
  for (const auto& [n, spans] : {std::array<int64_t, 2>{16, 2}, {37, 6}, {5, 22}}) {
    for (const WeightSpec& spec : row_specs()) cases.push_back(row_case(spec, n, spans));
    cases.push_back({{F::f16}, {F::f16}, 1, n, spans * 64});
  }
  uint64_t seed = 1;
  for (const GpuCase& c : cases) {
    EXPECT_TRUE(is_row(c, stream.device())) << label(c.weight);
    for (const Data data : {Data::normal, Data::outliers, Data::tiny}) {
      expect_product(stream, c, ++seed, data);
    }
  }
}

// x of many binades, which f16 takes in two parts; the largest and the smallest numbers.
TEST(MatmulSm90Gemv, EveryBinadeOfX) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t n = 9, k = 1024;
  for (const WeightSpec& spec :
       {kBf16, WeightSpec{F::f16}, kFp8, WeightSpec{F::int8, true, {F::f32, 1, 0}}, kMxfp4}) {
    const Weight w = random_weight(spec, n, k, 3);
    for (const int lowest : {-30, -60, -126}) {
      for (const int highest : {0, 20, 120}) {
        SCOPED_TRACE(concat(label(spec), " binades ", lowest, " to ", highest));
        std::vector<float> values = random_values(k, 7);
        for (int64_t i = 0; i < k; ++i) {
          values[static_cast<size_t>(i)] =
              std::ldexp(values[static_cast<size_t>(i)],
                         lowest + static_cast<int>(i * 7 % (highest - lowest)));
        }
        const Tensor x = convert(Tensor::from<float>(values, {1, k}, F::f32), F::bf16);
        const std::vector<float> rounded = to_floats(x);
        const Expected e = expect(rounded, w.values, 1, n, k);
        std::vector<double> bound = gpu_bounds(e, k, F::f32, 256);
        for (double& b : bound) b += row_loss(rounded, w.values);
        MatmulOptions o;
        o.out = F::f32;
        EXPECT_TRUE(within(to_floats(matmul_on(stream, x, w.tensor, o)), e.values, bound));
      }
    }
  }
}

// Elements far below the largest are exact too, which shows where the weights of those above are
// zeros.
TEST(MatmulSm90Gemv, SmallElementsBesideLarge) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t n = 4, k = 1024;
  MatmulOptions o;
  o.out = F::f32;
  for (const WeightSpec& spec :
       {WeightSpec{F::f16}, kFp8, WeightSpec{F::int8, true, {F::f32, 1, 0}}, kMxfp4}) {
    Weight w = random_weight(spec, n, k, 3);
    const int64_t row = k * bits(spec.format) / 8;
    for (int64_t i = 0; i < n; ++i) {
      std::memset(w.tensor.data<uint8_t>() + i * row, 0, static_cast<size_t>(row / 2));
      std::fill_n(w.values.begin() + i * k, k / 2, 0.0);
    }
    for (int below = 1; below <= 50; ++below) {
      SCOPED_TRACE(concat(label(spec), " 2^-", below));
      std::vector<float> values = random_values(k, 7);
      for (int64_t i = 0; i < k; ++i) {
        values[static_cast<size_t>(i)] =
            i < k / 2 ? 1.0f : std::ldexp(values[static_cast<size_t>(i)], -below);
      }
      const Tensor x = convert(Tensor::from<float>(values, {1, k}, F::f32), F::bf16);
      const std::vector<float> rounded = to_floats(x);
      const Expected e = expect(rounded, w.values, 1, n, k);
      std::vector<double> bound = gpu_bounds(e, k, F::f32, 1);
      for (double& b : bound) b += row_loss(rounded, w.values);
      EXPECT_TRUE(within(to_floats(matmul_on(stream, x, w.tensor, o)), e.values, bound));
    }
  }
}

TEST(MatmulSm90Gemv, NotFinite) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t n = 8, k = 1024;
  const float inf = std::numeric_limits<float>::infinity();
  MatmulOptions o;
  o.out = F::f32;
  for (const WeightSpec& spec : row_specs()) {
    SCOPED_TRACE(label(spec));
    const Weight w = random_weight(spec, n, k, 3);
    for (const float special : {inf, -inf, std::nanf("")}) {
      std::vector<float> values = random_values(k, 7);
      values[300] = special;
      const Tensor x = convert(Tensor::from<float>(values, {1, k}, F::f32), F::bf16);
      const std::vector<float> y = to_floats(matmul_on(stream, x, w.tensor, o));
      for (int64_t i = 0; i < n; ++i) {
        const double product = special * w.values[static_cast<size_t>(i * k + 300)];
        if (std::isnan(product)) {
          EXPECT_TRUE(std::isnan(y[static_cast<size_t>(i)]));
        } else {
          EXPECT_EQ(y[static_cast<size_t>(i)], static_cast<float>(product));
        }
      }
    }
    const Tensor zeros = Tensor::zeros({1, k}, F::bf16);
    EXPECT_EQ(to_floats(matmul_on(stream, zeros, w.tensor, o)),
              std::vector<float>(static_cast<size_t>(n), 0.0f));
  }
}

// No race, no conflict of banks, whatever the order; and the same bits.
TEST(MatmulSm90Gemv, StrictUnderAdversarialSchedules) {
#if defined(HALFTONE_SANITIZED)
  constexpr uint64_t kSeeds = 2;
#else
  constexpr uint64_t kSeeds = 20;
#endif
  for (const WeightSpec& spec : {kBf16, WeightSpec{F::f16}, kFp8, kMxfp8, kNvfp4, kMxfp4, kInt4}) {
    const GpuCase c = row_case(spec, 40, spec.format == F::nvfp4 ? 26 : 35);
    const Tensor x = random_weight(c.x, 1, c.k, 3).tensor;
    const Tensor w = random_weight(c.weight, c.n, c.k, 4).tensor;
    std::vector<float> first;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Stream stream(Device::simulator(Arch::sm_90a));
      ASSERT_TRUE(is_row(c, stream.device()));
      configure(stream, {.severity = Options::Severity::strict,
                         .numerics = Options::Numerics::fast,
                         .schedule = Options::Schedule::adversarial,
                         .seed = seed,
                         .throws = false});
      const std::vector<float> y = to_floats(matmul_on(stream, x, w));
      const SimulatorReport report = simulator_report(stream);
      ASSERT_TRUE(report.clean()) << label(spec) << " seed " << seed << "\n" << to_string(report);
      EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal)
          << label(spec) << "\n"
          << to_string(report);
      if (first.empty()) first = y;
      ASSERT_EQ(y, first) << "seed " << seed;
    }
  }
}

// A GEMV of one row of BF16 x, with all of its kernel's params but the output.
struct RowProduct {
  Tensor w, x;
  gemm::GpuWeight weight;
  gemm::GpuGemm product;

  // `rows` outputs, or gates whose other halves lie behind them or, interleaved, beside each.
  RowProduct(const WeightSpec& spec, int64_t rows, int64_t k, bool gate, bool interleaved,
             Stream& stream)
      : w(random_weight(spec, gate ? 2 * rows : rows, k, 3).tensor.to(stream.device())),
        x(random_weight(kBf16, 1, k, 4).tensor.to(stream.device())) {
    const gemm::XSpec plain;  // bf16
    weight = gemm::gpu_weight(plain, spec.format, spec.scaled, spec.scaling);
    set_weight(weight, gemm::gpu_layout(w, "weight"), &product);
    product.source[0] = product.source[1] = gemm::gpu_source(w);
    if (gate) product.source[1].first_row = interleaved ? 1 : rows;
    if (interleaved) product.weight.row_step = 2;
    product.epilogue.gate = gate;
    product.epilogue.out_format = F::f32;
    product.epilogue.out_row = rows * 4;
    product.n = static_cast<uint32_t>(rows);
    gemm::GpuX(plain, weight, k).enter(x, 1, &product, stream);
  }
  std::vector<float> run(uint32_t multiprocessors, Stream& stream) {
    const Tensor out = Tensor::zeros({1, product.n}, F::f32, stream.device());
    product.epilogue.out = out.data<char>();
    launch_sm90_gemv(weight, {&product, 1}, stream, multiprocessors);
    stream.synchronize();
    return to_floats(out.to(Device::cpu()));
  }
};

// Persistent CTAs with several tiles, with and without prefetched weights, gated or not: the
// same bits as of a block for each tile.
TEST(MatmulSm90Gemv, PersistentCtas) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& spec : some(row_specs(), 3)) {
    for (const bool gate : {false, true}) {
      if (kSanitized && gate) continue;
      SCOPED_TRACE(concat(label(spec), gate ? " gate" : ""));
      const int64_t n = 7 * 16 + 5, k = 18 * 1024 / bits(spec.format);
      RowProduct row(spec, n, k, gate, false, stream);
      std::vector<float> first;
      for (const bool constant : {false, true}) {
        for (const uint32_t multiprocessors : {0u, 1u, 3u}) {
          row.product.static_weights = constant;
          const std::vector<float> y = row.run(multiprocessors, stream);
          if (first.empty()) first = y;
          EXPECT_EQ(y, first);
        }
      }
    }
  }
}

// Scales that TMA copies beside the weights, and those that lanes load in place where
// copies cannot take them: the same bits.
TEST(MatmulSm90Gemv, TmaScalesAsLoaded) {
  Stream stream(Device::simulator(Arch::sm_90a));
  configure_strict(stream);
  const int64_t n = 5 * 16 + 8, k = 5120;
  for (const WeightSpec& spec :
       {kFp8, kMxfp8, kMxfp4, kInt4, WeightSpec{F::fp8_e4m3, true, {F::bf16, 1, 64}},
        WeightSpec{F::fp8_e4m3, true, {F::f32, 1, 128}},
        WeightSpec{F::fp8_e4m3, true, {F::bf16, 32, 32}},
        WeightSpec{F::int8, true, {F::f16, 1, 128}}, WeightSpec{F::int4, true, {F::f16, 1, 32}},
        WeightSpec{F::int4, true, {F::f16, 64, 64}}}) {
    for (const bool gate : {false, true}) {
      for (const bool interleaved : {false, true}) {
        if (interleaved && !gate) continue;
        if (kSanitized && (spec.format != F::mxfp4 || gate)) continue;
        SCOPED_TRACE(concat(label(spec), gate ? " gate" : "", interleaved ? " interleaved" : ""));
        // Halves of 128 rows, as blocks of rows want.
        const int64_t rows = gate ? 128 : n;
        RowProduct one(spec, rows, k, gate, interleaved, stream);
        gemm::GpuGemm& g = one.product;
        // The same scales, in rows that do not lie on 16 bytes.
        const Tensor scales = one.w.scales();
        const int64_t bytes = scales.bytes(), row = g.weight.scale_row;
        const int64_t wide = row + gemm::scale_bytes(g.weight.scale_format);
        Tensor moved = Tensor::zeros({bytes / row, wide}, F::u8);
        const Tensor on_host = scales.to(Device::cpu());
        for (int64_t r = 0; r < bytes / row; ++r) {
          std::memcpy(moved.data<char>() + r * wide, on_host.data<char>() + r * row,
                      static_cast<size_t>(row));
        }
        const Tensor elsewhere = moved.to(stream.device());
        std::vector<float> first;
        uint64_t copied = 0, before = simulator_report(stream).counters.tma_bytes_read;
        for (const bool loaded : {false, true}) {
          if (loaded) {
            g.weight.scale_row = wide;
            for (gemm::GpuSource& s : g.source) s.scales = elsewhere.data<uint8_t>();
          }
          const std::vector<float> y = one.run(2, stream);
          const SimulatorReport report = simulator_report(stream);
          ASSERT_TRUE(report.clean()) << to_string(report);
          EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal)
              << to_string(report);
          const uint64_t all = report.counters.tma_bytes_read, own = all - before;
          before = all;
          if (!loaded) first = y, copied = own;
          EXPECT_EQ(y, first);
          if (loaded) {
            EXPECT_LT(own, copied);
          }
        }
      }
    }
  }
}

// Bias, residual, gates of both orders, by the kernel that takes any number of rows.
TEST(MatmulSm90Gemv, EpiloguesLikeOthers) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t n = 40, k = 2048;
  for (const WeightSpec& spec : {kBf16, kMxfp8, kNvfp4, kMxfp4}) {
    const Tensor w = random_weight(spec, 2 * n, k, 5).tensor;
    std::vector<float> small = random_values(2 * k, 4);
    for (float& v : small) v *= 0.01f;
    const Tensor x = convert(Tensor::from<float>(small, {2, k}, F::f32), F::bf16);
    for (const bool interleaved : {false, true}) {
      SCOPED_TRACE(concat(label(spec), interleaved ? " interleaved" : ""));
      MatmulOptions o;
      o.out = F::f32;
      o.gated = GatedActivation::swiglu(), o.interleaved = interleaved;
      o.bias = random_tensor({2 * n}, F::f32, 6);
      const std::vector<float> two =
          to_floats(by_another_kernel([&] { return matmul_on(stream, x, w, o); }));
      const std::vector<float> one =
          to_floats(matmul_on(stream, x.slice(0, 1, 2).contiguous_copy(), w, o));
      for (int64_t i = 0; i < n; ++i) {
        const float other = two[static_cast<size_t>(n + i)];
        EXPECT_NEAR(one[static_cast<size_t>(i)], other, 2e-5 * (1 + std::abs(other)));
      }
    }
  }
}

// Horizontally fused GEMMs: the bits of a launch each, with tiles that do not come out even.
// Weights that are constant and others do not share one.
TEST(MatmulSm90Gemv, HorizontallyFused) {
  const Device device = Device::simulator(Arch::sm_90a);
  Stream stream(device);
  configure_strict(stream);
  for (const WeightSpec& spec : row_specs()) {
    SCOPED_TRACE(label(spec));
    const int64_t k = 18 * 1024 / bits(spec.format);
    const Tensor x = random_weight(kBf16, 1, k, 3).tensor.to(device);
    const bool alike = spec.format != F::nvfp4;
    const SharedX shared(device, spec, x, {37, 16, 24}, {alike, true, true});
    ASSERT_EQ(shared.run_at_once(stream), alike);
    ASSERT_TRUE(alike || shared.run_at_once(stream, 1));
    shared.expect_bits_of_runs_apart(stream, alike ? 0 : 1);
  }
}

TEST(MatmulSm90Gemv, OtherRowsRunSeparately) {
  const Device device = Device::simulator(Arch::sm_90a);
  Stream stream(device);
  const int64_t n = 32, k = 1024;
  MatmulProblem p;
  p.m = 1, p.n = n, p.k = k;
  p.x = p.weight = p.out = F::bf16;
  const MatmulPlan plans[] = {plan(p, device), plan(p, device)};
  MatmulTensors a;
  a.x = random_tensor({1, k}, F::bf16, 1).to(device);
  a.weight = random_tensor({n, k}, F::bf16, 2).to(device);
  a.out = Tensor::zeros({1, n}, F::bf16, device);
  MatmulTensors b = a;
  b.x = random_tensor({1, k}, F::bf16, 3).to(device);
  b.out = Tensor::zeros({1, n}, F::bf16, device);
  const MatmulCall calls[] = {{&plans[0], &a}, {&plans[1], &b}};
  EXPECT_FALSE(run_fused(calls, stream));
  stream.synchronize();
  EXPECT_EQ(to_floats(a.out.to(Device::cpu())), std::vector<float>(n));
  // Biases of two formats, of which the first GEMM has none.
  MatmulTensors many[3] = {a, a, a};
  MatmulPlan of[3];
  for (int i = 0; i < 3; ++i) {
    p.bias = i > 0;
    if (i > 0) many[i].bias = random_tensor({n}, i == 1 ? F::f32 : F::bf16, 4).to(device);
    many[i].out = Tensor::zeros({1, n}, F::bf16, device);
    of[i] = plan(p, device);
  }
  const MatmulCall three[] = {{&of[0], &many[0]}, {&of[1], &many[1]}, {&of[2], &many[2]}};
  EXPECT_FALSE(run_fused(three, stream));
  EXPECT_TRUE(run_fused(std::span(three, 2), stream));
  b.out = Tensor::zeros({1, n + 1}, F::bf16, device);
  expect_error([&] { run_fused(calls, stream); }, {"out is", "the plan needs [1, 32]"});
}

TEST(MatmulSm90Gemv, ToleranceBreaksOnSmallErrors) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t n = 11, k = 2048;
  for (const WeightSpec& spec : {kBf16, kFp8, kNvfp4, kInt4}) {
    SCOPED_TRACE(label(spec));
    const Weight w = random_weight(spec, n, k, 5);
    const Tensor x = random_tensor({1, k}, F::bf16, 6);
    const Expected e = expect(to_floats(x), w.values, 1, n, k);
    std::vector<double> bound = gpu_bounds(e, k, F::f32, 10);
    for (double& b : bound) b += row_loss(to_floats(x), w.values);
    const auto fits = [&](const Tensor& changed) {
      MatmulOptions o;
      o.out = F::f32;
      return static_cast<bool>(
          within(to_floats(matmul_on(stream, changed, w.tensor, o)), e.values, bound));
    };
    ASSERT_TRUE(fits(x));
    Tensor wrong = x.contiguous_copy();
    std::swap(wrong.data<uint16_t>()[k - 3], wrong.data<uint16_t>()[k - 4]);
    EXPECT_FALSE(fits(wrong));
    wrong = x.contiguous_copy();
    wrong.data<uint16_t>()[k - 1] = 0;  // the last element of K is skipped
    EXPECT_FALSE(fits(wrong));
    wrong = x.contiguous_copy();
    wrong.data<uint16_t>()[17] ^= 0x40;  // the highest bit of a significand
    EXPECT_FALSE(fits(wrong));
  }
}

TEST(MatmulSm90Gemv, RefusesWithTheReason) {
  const auto reason = [](const GpuCase& c) {
    gemm::XSpec x;
    x.format = c.x.format;
    const gemm::GpuWeight w =
        gemm::gpu_weight(x, c.weight.format, c.weight.scaled, c.weight.scaling);
    const gemm::GemmProblem p{
        c.m, c.n, c.k, 0, false, c.weight.format, c.weight.scaled, c.weight.scaling, false, x};
    return refuse_sm90_gemv(p, w, gemm::GpuX(x, w, c.k));
  };
  EXPECT_EQ(reason({kNvfp4, kBf16, 1, 64, 1024}), "");
  EXPECT_NE(reason({kNvfp4, kBf16, 2, 64, 1024}).find("m is 2"), std::string::npos);
  EXPECT_NE(reason({kNvfp4, {F::f32}, 1, 64, 1024}).find("x is not bf16"), std::string::npos);
  EXPECT_NE(reason({kNvfp4, kBf16, 1, 64, 1040}).find("K is 1040"), std::string::npos);
  EXPECT_NE(reason({kBf16, kBf16, 1, 32768, 1024}).find("N is 32768"), std::string::npos);
  EXPECT_NE(reason({kFp8, kBf16, 1, 64, 65536}).find("K is 65536"), std::string::npos);
  const WeightSpec rows{F::fp8_e4m3, true, {F::f32, 96, 128}};
  EXPECT_NE(reason({rows, kBf16, 1, 96, 1024}).find("blocks of powers of two"), std::string::npos);
  const WeightSpec zeros{F::int4, true, {F::bf16, 1, 32, ScaleLayout::linear, true}};
  EXPECT_NE(reason({zeros, kBf16, 1, 64, 1024}).find("weight has zero points"), std::string::npos);
}

}  // namespace
}  // namespace halftone::test

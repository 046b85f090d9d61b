// Weights given as [K, N], and sums in f16.
#include <array>

#include "matmul/gpu_cases.h"

namespace halftone::test {
namespace {

using F = Format;

Tensor turned(const Tensor& t) { return t.transpose(0, 1).contiguous_copy(); }

TEST(MatmulLayouts, TransposedWeightsGiveTheSameBits) {
  const int64_t n = 40, k = 72;
  for (const Device& device :
       {Device::cpu(), Device::simulator(Arch::sm_80), Device::simulator(Arch::sm_90a)}) {
    Stream stream(device);
    for (const F format : {F::f32, F::f16, F::bf16}) {
      for (const int64_t m : {1, 3, 33}) {
        SCOPED_TRACE(concat(device.name(), " ", name(format), " m ", m));
        const Tensor x = random_tensor({m, k}, format, 1), w = random_tensor({n, k}, format, 2);
        MatmulOptions o;
        o.out = F::f32;
        const std::vector<float> want = to_floats(matmul_on(stream, x, w, o));
        o.weight_transposed = true;
        EXPECT_EQ(to_floats(matmul_on(stream, x, turned(w), o)), want);
        o.gated = GatedActivation{};
        EXPECT_EQ(matmul_on(stream, x, turned(w), o).size(1), n / 2);
      }
    }
  }
}

// The same MMAs in the same order, K-major or MN-major W.
TEST(MatmulLayouts, Sm90ReadsTransposedWeightsInPlace) {
  Stream stream(Device::simulator(Arch::sm_90a));
  MatmulProblem p;
  p.x = p.weight = F::bf16, p.weight_transposed = true;
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{40, 136, 200}, {20, 64, 64}, {130, 256, 72}}) {
    p.m = m, p.n = n, p.k = k;
    EXPECT_NE(describe(plan(p, stream.device())).find("W as [K, N]"), std::string::npos);
    for (const F format : {F::bf16, F::f16}) {
      SCOPED_TRACE(concat(m, "x", n, "x", k, " ", name(format)));
      const Tensor x = random_tensor({m, k}, format, 1), w = random_tensor({n, k}, format, 2);
      MatmulOptions o;
      o.out = format;
      const std::vector<float> want = to_floats(matmul_on(stream, x, w, o));
      o.weight_transposed = true;
      EXPECT_EQ(to_floats(matmul_on(stream, x, turned(w), o)), want);
    }
  }
  p.n = 100;
  EXPECT_EQ(describe(plan(p, stream.device())).find("W as [K, N]"), std::string::npos);
}

TEST(MatmulLayouts, ReferenceTakesTransposedWeights) {
  const Tensor x = random_tensor({3, 20}, F::f32, 1), w = random_tensor({7, 20}, F::f32, 2);
  MatmulOptions o;
  o.weight_transposed = true;
  EXPECT_EQ(to_floats(matmul_reference(x, turned(w), o)), to_floats(matmul_reference(x, w)));
}

TEST(MatmulLayouts, PlansReadTheWeightInEveryRun) {
  MatmulProblem p;
  p.m = 2, p.n = 8, p.k = 16, p.x = p.weight = p.out = F::f32, p.weight_transposed = true;
  const MatmulPlan made = plan(p, Device::cpu());
  EXPECT_GE(made.workspace_bytes, 8 * 16 * 4);
  EXPECT_NE(describe(made).find("transposed"), std::string::npos);
  const Tensor x = random_tensor({2, 16}, F::f32, 1), out = Tensor::empty({2, 8}, F::f32);
  for (const uint64_t seed : {2, 3}) {
    const Tensor w = random_tensor({8, 16}, F::f32, seed);
    run(made, {x, turned(w), out, {}, {}}, Stream::default_stream());
    EXPECT_EQ(to_floats(out), to_floats(matmul(x, w)));
  }
}

MatmulProblem f16_problem(int64_t m, int64_t n, int64_t k) {
  MatmulProblem p;
  p.m = m, p.n = n, p.k = k, p.x = p.weight = F::f16, p.out = F::f32;
  p.accumulate = F::f16;
  return p;
}

TEST(MatmulLayouts, Fp16AccumulationWhereItIsFaster) {
  const auto half = [](const MatmulProblem& p, Arch arch) {
    return describe(plan(p, Device::simulator(arch))).find("in f16") != std::string::npos;
  };
  for (const Arch arch : {Arch::sm_80, Arch::sm_89, Arch::sm_90a, Arch::sm_100a, Arch::sm_120a}) {
    const bool faster = arch == Arch::sm_89 || arch == Arch::sm_120a;
    EXPECT_EQ(half(f16_problem(32, 64, 64), arch), faster) << name(arch);
    EXPECT_FALSE(half(f16_problem(8, 64, 64), arch)) << "few rows wait for memory";
  }
  EXPECT_TRUE(can_run(f16_problem(32, 64, 64), Device::cpu()).ok);
}

// Every 16 products join a sum of at most 64 with one rounding to 11 bits, cut off at worst.
TEST(MatmulLayouts, Fp16AccumulationKeepsItsBound) {
  const int64_t m = 33, n = 130, k = 200;
  const Weight w = random_weight({F::f16}, n, k, 1), x = random_weight({F::f16}, m, k, 2);
  const Expected e = expect(to_floats(x.tensor), w.values, m, n, k);
  std::vector<double> f32_bounds = gpu_bounds(e, k, F::f32, 8), bounds = f32_bounds;
  for (size_t i = 0; i < bounds.size(); ++i) bounds[i] += 0x1p-8 * e.magnitudes[i];
  for (const Arch arch : {Arch::sm_89, Arch::sm_120a}) {
    Stream stream(Device::simulator(arch));
    MatmulOptions o;
    o.out = F::f32, o.accumulate = F::f16;
    std::vector<float> y = to_floats(matmul_on(stream, x.tensor, w.tensor, o));
    EXPECT_TRUE(within(y, e.values, bounds));
    EXPECT_FALSE(within(y, e.values, f32_bounds)) << "the sums were in f32";
    y[5] += static_cast<float>(1.01 * bounds[5] + std::abs(y[5] - e.values[5]));
    EXPECT_FALSE(within(y, e.values, bounds)) << "a deliberate error passes";
  }
}

TEST(MatmulLayouts, RefusalsNameTheRule) {
  MatmulProblem p = f16_problem(32, 64, 64);
  p.weight = F::bf16;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("accumulate is f16"), std::string::npos);
  p = MatmulProblem{};
  p.m = 1, p.n = 32, p.k = 32, p.weight = F::int8, p.scaled = true;
  p.scaling = {F::f32, 1, 0}, p.weight_transposed = true;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("transposed"), std::string::npos);
  const Tensor x = random_tensor({2, 16}, F::f32, 1), w = random_tensor({8, 16}, F::f32, 2);
  MatmulOptions o;
  o.weight_transposed = true;
  EXPECT_THROW(matmul(x, w, o), Error);
}

}  // namespace
}  // namespace halftone::test

// Products that normalise x first: in Hopper's kernel for one row, and by a kernel ahead of others.
#include <tuple>

#include "matmul/gpu_cases.h"
#include "ops/matmul/together.h"
#include "support/sanitized.h"

namespace halftone::test {
namespace {

using F = Format;

const WeightSpec kBf16{F::bf16}, kFp8{F::fp8_e4m3, true, {F::f32, 128, 128}};
const WeightSpec kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};
const WeightSpec kMxfp4{F::mxfp4, true, {F::ue8m0, 1, 32}};
const WeightSpec kInt4{F::int4, true, {F::f16, 1, 128}};
constexpr float kEps = 1e-3f;  // of x that is small: it counts

MatmulProblem problem_of(const WeightSpec& spec, int64_t m, int64_t n, int64_t k, F x = F::bf16,
                         F norm = F::bf16) {
  MatmulProblem p;
  p.m = m, p.n = n, p.k = k;
  p.x = x, p.weight = spec.format, p.out = F::f32;
  p.scaled = spec.scaled, p.scaling = spec.scaling;
  p.norm = MatmulNorm{kEps, norm};
  return p;
}
// Rows of a tenth of the usual size.
Tensor row_of(int64_t m, int64_t k, F format) {
  std::vector<float> values = random_values(m * k, 7);
  for (float& v : values) v *= 0.1f;
  return convert(Tensor::from<float>(values, {m, k}, F::f32), format);
}

// The bits of the norm followed by a GEMM: rows of one chunk to all that a thread
// keeps in registers.
TEST(MatmulNorm, FusedIntoTheSm90Gemv) {
  const Device device = Device::simulator(Arch::sm_90a);
  for (const WeightSpec& spec : {kBf16, WeightSpec{F::f16}, kFp8, kNvfp4, kMxfp4, kInt4}) {
    for (const int64_t k : {512, 2304, 16384}) {
      if (kSanitized && k > 512) continue;
      for (const bool constant : {false, true}) {
        SCOPED_TRACE(concat(label(spec), ", K ", k, constant ? " constant" : ""));
        Stream stream(device);
        configure_strict(stream);
        const int64_t n = 24;
        MatmulProblem p = problem_of(spec, 1, n, k);
        p.static_weights = constant;
        p.norm->weight_offset = constant ? 1.0f : 0.0f;
        ASSERT_TRUE(normalises(p, device));
        MatmulTensors t;
        t.x = row_of(1, k, F::bf16).to(device);
        t.weight = random_weight(spec, n, k, 5).tensor.to(device);
        t.norm = random_tensor({k}, F::bf16, 6).to(device);
        t.out = Tensor::zeros({1, n}, F::f32, device);
        const uint64_t before = simulator_report(stream).launches;
        run(plan(p, device), t, stream);
        const SimulatorReport report = simulator_report(stream);
        ASSERT_TRUE(report.clean()) << to_string(report);
        EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal)
            << to_string(report);
        EXPECT_EQ(report.launches - before, 1u);
        const std::vector<float> within = to_floats(t.out.to(Device::cpu()));
        NormProblem norm;
        norm.rows = 1, norm.columns = k, norm.eps = kEps;
        norm.weight_offset = p.norm->weight_offset;
        const Tensor normed = Tensor::empty({1, k}, F::bf16, device);
        run(plan(norm, device), {t.x, t.norm, normed, {}}, stream);
        p.norm.reset();
        t.x = normed, t.norm = {};
        run(plan(p, device), t, stream);
        EXPECT_EQ(within, to_floats(t.out.to(Device::cpu())));
      }
    }
  }
}

// Elsewhere a kernel ahead: CPU and GPUs, formats of x and of the norm, rows, gates, quantised x.
TEST(MatmulNorm, AKernelBeforeOtherGemms) {
  const int64_t n = 48, k = 256;
  for (const Device& device :
       {Device::cpu(), Device::simulator(Arch::sm_80), Device::simulator(Arch::sm_90a)}) {
    for (const auto& [m, x, norm] : {std::tuple<int64_t, F, F>{1, F::f32, F::f32},
                                     {1, F::bf16, F::f32},
                                     {3, F::bf16, F::bf16},
                                     {20, F::bf16, F::bf16},
                                     {2, F::f16, F::bf16}}) {
      for (const bool quantised : {false, true}) {
        SCOPED_TRACE(concat(device.name(), ", ", m, " rows of ", name(x)));
        Stream stream(device);
        MatmulProblem p = problem_of(kFp8, m, n, k, x, norm);
        if (quantised) p.quantize_x = parse_quantization("fp8_row");
        EXPECT_FALSE(normalises(p, device));
        MatmulTensors t;
        t.x = row_of(m, k, x).to(device);
        t.weight = random_weight(kFp8, n, k, 5).tensor.to(device);
        t.norm = random_tensor({k}, norm, 6).to(device);
        t.out = Tensor::zeros({m, n}, F::f32, device);
        run(plan(p, device), t, stream);
        stream.synchronize();
        const std::vector<float> together = to_floats(t.out.to(Device::cpu()));
        const Tensor normed = rms_norm(t.x, t.norm, kEps, stream);
        p.norm.reset();
        t.x = normed, t.norm = {};
        run(plan(p, device), t, stream);
        stream.synchronize();
        EXPECT_EQ(together, to_floats(t.out.to(Device::cpu())));
      }
    }
  }
}

// Against FP64, by the function that makes its own plan; an element of x or of the norm's weight
// that is not there breaks the bound.
TEST(MatmulNorm, AgainstTheReference) {
  const int64_t n = 24, k = 1024;
  for (const Device& device : {Device::cpu(), Device::simulator(Arch::sm_90a)}) {
    Stream stream(device);
    const Tensor x = row_of(1, k, F::bf16), w = random_weight(kBf16, n, k, 5).tensor;
    MatmulOptions o;
    o.out = F::f32;
    o.norm = random_tensor({k}, F::bf16, 6), o.norm_eps = kEps;
    const auto result = [&](const Tensor& row, const Tensor& norm) {
      MatmulOptions there = o;
      there.norm = norm.to(device);
      const Tensor y = matmul(row.to(device), w.to(device), there, stream);
      stream.synchronize();
      return to_floats(y.to(Device::cpu()));
    };
    const std::vector<float> expected = to_floats(matmul_reference(x, w, o));
    const std::vector<float> xs = to_floats(rms_norm_reference(x, o.norm, kEps)), ws = to_floats(w);
    // Sums in f32; and of 1,024 elements some may round the other way than FP64's, by 2^-8.
    std::vector<double> bound;
    for (int64_t i = 0; i < n; ++i) {
      double all = 0, most = 0;
      for (int64_t j = 0; j < k; ++j) {
        const double term =
            std::abs(double{xs[static_cast<size_t>(j)]} * ws[static_cast<size_t>(i * k + j)]);
        all += term, most = std::max(most, term);
      }
      bound.push_back(all * 0x1p-16 + most * 0x1p-8 * 2);
    }
    EXPECT_TRUE(within(result(x, o.norm), expected, bound));
    // One of the larger elements, and its weight.
    const auto at = std::max_element(xs.begin() + 1, xs.end()) - xs.begin();
    Tensor wrong = o.norm.contiguous_copy();
    wrong.data<uint16_t>()[at] ^= 0x40;  // the highest bit of a significand
    EXPECT_FALSE(within(result(x, wrong), expected, bound));
    wrong = x.contiguous_copy();
    wrong.data<uint16_t>()[at] ^= 0x40;
    EXPECT_FALSE(within(result(wrong, o.norm), expected, bound));
  }
}

// Query, key and value share a launch and the norm; other norms do not.
TEST(MatmulNorm, SharedByFusedGemms) {
  const Device device = Device::simulator(Arch::sm_90a);
  Stream stream(device);
  configure_strict(stream);
  const int64_t k = 1024;
  const Tensor x = row_of(1, k, F::bf16).to(device);
  const Tensor norm = random_tensor({k}, F::bf16, 6).to(device);
  std::vector<MatmulPlan> plans;
  std::vector<MatmulTensors> tensors;
  std::vector<MatmulCall> calls;
  const std::vector<int64_t> extents = {37, 16, 24};
  for (const int64_t n : extents) {
    plans.push_back(plan(problem_of(kFp8, 1, n, k), device));
    MatmulTensors t;
    t.x = x, t.norm = norm;
    t.weight = random_weight(kFp8, n, k, static_cast<uint64_t>(n)).tensor.to(device);
    t.out = Tensor::zeros({1, n}, F::f32, device);
    tensors.push_back(t);
  }
  for (size_t i = 0; i < plans.size(); ++i) calls.push_back({&plans[i], &tensors[i]});
  const uint64_t before = simulator_report(stream).launches;
  ASSERT_TRUE(run_fused(calls, stream));
  const SimulatorReport report = simulator_report(stream);
  EXPECT_TRUE(report.clean()) << to_string(report);
  EXPECT_EQ(report.launches - before, 1u);
  for (size_t i = 0; i < plans.size(); ++i) {
    MatmulTensors alone = tensors[i];
    alone.out = Tensor::zeros({1, extents[i]}, F::f32, device);
    run(plans[i], alone, stream);
    EXPECT_EQ(to_floats(tensors[i].out.to(Device::cpu())), to_floats(alone.out.to(Device::cpu())));
  }
  tensors[2].norm = random_tensor({k}, F::bf16, 8).to(device);
  EXPECT_FALSE(run_fused(calls, stream));
  // Nor do several rows, which are normalised by a kernel before each GEMM.
  MatmulProblem many = problem_of(kFp8, 20, 128, k);
  const MatmulPlan of_many = plan(many, device);
  MatmulTensors t;
  t.x = row_of(20, k, F::bf16).to(device), t.norm = norm;
  t.weight = random_weight(kFp8, 128, k, 3).tensor.to(device);
  t.out = Tensor::zeros({20, 128}, F::f32, device);
  const MatmulCall two[] = {{&of_many, &t}, {&of_many, &t}};
  EXPECT_FALSE(run_fused(two, stream));
}

// Weights that tensor copies cannot take go to the kernel of every GPU, behind a norm.
TEST(MatmulNorm, WeightsThatDoNotFit) {
  const Device device = Device::simulator(Arch::sm_90a);
  Stream stream(device);
  const int64_t n = 16, k = 512;
  const Tensor weight = random_tensor({n, k + 1}, F::bf16, 5).to(device).slice(1, 0, k);
  const Tensor x = row_of(1, k, F::bf16).to(device), norm = random_tensor({k}, F::bf16, 6);
  MatmulOptions o;
  o.out = F::f32;
  const Tensor normed = rms_norm(x, norm.to(device), kEps, stream);
  const std::vector<float> apart = to_floats(matmul(normed, weight, o, stream).to(Device::cpu()));
  o.norm = norm.to(device), o.norm_eps = kEps;
  EXPECT_EQ(to_floats(matmul(x, weight, o, stream).to(Device::cpu())), apart);
}

TEST(MatmulNorm, Errors) {
  MatmulProblem p = problem_of(kBf16, 1, 16, 64);
  const MatmulPlan made = plan(p, Device::cpu());
  EXPECT_NE(describe(made).find("normalised"), std::string::npos);
  MatmulTensors t;
  t.x = row_of(1, 64, F::bf16), t.weight = random_tensor({16, 64}, F::bf16, 1);
  t.out = Tensor::zeros({1, 16}, F::f32);
  Stream& stream = Stream::default_stream();
  expect_error([&] { run(made, t, stream); }, {"norm is", "was made for one"});
  t.norm = random_tensor({63}, F::bf16, 1);
  expect_error([&] { run(made, t, stream); }, {"norm is", "bf16 [64]"});
  t.norm = random_tensor({64}, F::f32, 1);
  expect_error([&] { run(made, t, stream); }, {"norm is", "bf16 [64]"});
  p.norm.reset();
  expect_error([&] { run(plan(p, Device::cpu()), t, stream); }, {"norm is", "without one"});
  p = problem_of(kBf16, 1, 16, 64, F::fp8_e4m3);
  EXPECT_FALSE(can_run(p, Device::cpu()).ok);
  p = problem_of(kBf16, 1, 16, 64);
  p.norm->weight = F::int8;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("int8"), std::string::npos);
}

}  // namespace
}  // namespace halftone::test

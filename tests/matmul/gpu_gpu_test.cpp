// GEMMs on GPUs, on the GPU.
#include <random>

#include "cuda/gpu.h"
#include "halftone/graph.h"
#include "matmul/fp8_few_cases.h"

namespace halftone::test {
namespace {

class MatmulOnGpu : public Gpu {};

TEST_F(MatmulOnGpu, EveryFormat) {
  Stream stream(device);
  for (const GpuCase& c : plain_cases(1, 13, 700)) expect_product(stream, c, 3);
  for (const GpuCase& c : plain_cases(5, 19, 1100)) expect_product(stream, c, 4);
  for (const GpuCase& c : plain_cases(45, 37, 330)) expect_product(stream, c, 5);
  for (const GpuCase& c : plain_cases(21, 300, 2048)) expect_product(stream, c, 6);
}

TEST_F(MatmulOnGpu, RandomProblems) {
  std::mt19937_64 random(20);
  const auto upto = [&](int64_t n) { return static_cast<int64_t>(random() % uint64_t(n)); };
  const std::vector<WeightSpec> specs = weight_specs();
  Stream stream(device);
  for (uint64_t i = 0; i < 1000; ++i) {
    GpuCase c;
    c.weight = specs[static_cast<size_t>(upto(static_cast<int64_t>(specs.size())))];
    c.x = upto(3) == 0 ? WeightSpec{Format::fp8_e4m3, true, {Format::f32, 1, 128}}
                       : WeightSpec{upto(2) == 0 ? Format::bf16 : Format::f32};
    const int64_t step = k_step(c.weight);
    c.m = upto(2) == 0 ? 1 + upto(16) : 1 + upto(300);
    c.n = 1 + upto(300);
    c.k = (1 + upto(600 / step)) * step;
    if (upto(4) == 0) c.k = (1 + upto(6)) * 512;  // what kernels that copy whole stages take
    c.out = upto(2) == 0 ? Format::f32 : Format::bf16;
    SCOPED_TRACE("problem " + std::to_string(i));
    expect_product(stream, c, 100 + i);
    if (HasFailure()) break;
  }
}

// Rows on which tensor copies take the scales of every format; alone and with x normalised first,
// which the GEMV or a kernel in front of it does.
TEST_F(MatmulOnGpu, GemvScalesAndNorm) {
  Stream stream(device);
  const int64_t n = 300, k = 5120;
  const Tensor x = random_tensor({1, k}, Format::bf16, 1).to(device);
  const Tensor norm = random_tensor({k}, Format::bf16, 2).to(device);
  for (const WeightSpec& spec : weight_specs()) {
    SCOPED_TRACE(label(spec));
    expect_product(stream, {spec, {Format::bf16}, 1, n, k}, 7);
    const Tensor w = random_weight(spec, n, k, 3).tensor.to(device);
    MatmulOptions o;
    o.out = Format::f32;
    const Tensor apart = matmul(rms_norm(x, norm, 1e-5f, stream), w, o, stream);
    o.norm = norm, o.norm_eps = 1e-5f;
    const Tensor within = matmul(x, w, o, stream);
    stream.synchronize();
    EXPECT_EQ(to_floats(within.to(Device::cpu())), to_floats(apart.to(Device::cpu())));
  }
}

// Tiles of 256 columns, the last of them in halves.
TEST_F(MatmulOnGpu, TailWaveSplitting) {
  Stream stream(device);
  const int64_t n = (properties(device).sm_count + 30) / 2 * 128 - 88;
  for (const WeightSpec& spec : {WeightSpec{Format::bf16},
                                 {Format::fp8_e4m3, true, {Format::f32, 128, 128}},
                                 {Format::mxfp8, true, {Format::ue8m0, 1, 32}},
                                 {Format::int8, true, {Format::f16, 1, 128}},
                                 {Format::nvfp4, true, {Format::fp8_e4m3, 1, 16}, true},
                                 {Format::int8, true, {Format::f32, 1, 32}},
                                 {Format::int4, true, {Format::bf16, 1, 128}},
                                 {Format::int4, true, {Format::f16, 1, 32}},
                                 {Format::int4, true, {Format::f16, 1, 64}}}) {
    expect_product(stream, {spec, {Format::bf16}, 400, n, 512, Format::bf16}, 6);
  }
}

// FP8 small-M GEMM: every tile, with and without split-K.
TEST_F(MatmulOnGpu, Fp8SmallM) {
  Stream stream(device);
  for (const Fp8FewCase& c : kFp8FewCases) expect_product(stream, c.problem, 5);
}

// The bits of a weight as [N, K], whichever kernel takes it as [K, N].
TEST_F(MatmulOnGpu, TransposedWeights) {
  Stream stream(device);
  for (const Format format : {Format::f32, Format::f16, Format::bf16}) {
    for (const int64_t m : {1, 20, 130, 500}) {
      SCOPED_TRACE(concat(name(format), " m ", m));
      const Tensor x = random_tensor({m, 200}, format, 1), w = random_tensor({328, 200}, format, 2);
      MatmulOptions o;
      o.out = format, o.accumulate = format == Format::f16 ? format : Format::f32;
      const std::vector<float> want = to_floats(matmul_on(stream, x, w, o));
      o.weight_transposed = true;
      const Tensor turned = w.transpose(0, 1).contiguous_copy();
      EXPECT_EQ(to_floats(matmul_on(stream, x, turned, o)), want);
    }
  }
}

TEST_F(MatmulOnGpu, QuantisedOutput) {
  Stream stream(device);
  const Tensor w =
      random_weight({Format::fp8_e4m3, true, {Format::f32, 128, 128}}, 288, 256, 5).tensor;
  for (const int64_t m : {1, 21, 300}) {
    const Tensor x = random_tensor({m, 256}, Format::bf16, 4, Data::outliers);
    MatmulOptions o;
    o.out = Format::f32;
    const Tensor y = matmul_on(stream, x, w, o);
    for (const char* text : {"fp8_tensor", "fp8_row", "fp8_1x128", "fp8_e5m2_row", "mxfp8", "mxfp4",
                             "nvfp4", "int8", "int8_g128"}) {
      SCOPED_TRACE(concat(text, " m ", m));
      o.quantize_out = parse_quantization(text);
      expect_same_bits(matmul_on(stream, x, w, o), quantize(y, *o.quantize_out));
    }
  }
}

// More tiles than there are places for blocks: those of few columns stay, those of eight, whose x
// has no room, do not.
TEST_F(MatmulOnGpu, PersistentCtas) {
  Stream stream(device);
  const int64_t n = 7205, k = 4096;
  const Tensor normal = random_tensor({n, k}, Format::bf16, 1).to(device);
  const Tensor x = random_tensor({8, k}, Format::bf16, 2).to(device);
  const auto check = [&](const Tensor& w) {
    const auto product = [&](int64_t m) {
      const Tensor y = matmul(x.slice(0, 0, m), w, Format::f32, stream);
      stream.synchronize();
      return to_floats(y.to(Device::cpu()));
    };
    const std::vector<float> all = product(8);
    for (const int64_t m : {2, 3}) {
      EXPECT_EQ(product(m), std::vector<float>(all.begin(), all.begin() + m * n)) << "m " << m;
    }
  };
  check(normal);
  for (const char* text :
       {"fp8", "fp8_row", "fp8_e5m2_row", "mxfp8", "mxfp4", "nvfp4", "int8", "int4_g128"}) {
    SCOPED_TRACE(text);
    check(quantize(normal, parse_quantization(text), stream));
  }
}

// One row, of matrices whose blocks have several tiles and of those that leave some without any.
TEST_F(MatmulOnGpu, Gemv) {
  Stream stream(device);
  for (const WeightSpec& spec : weight_specs()) {
    for (const int64_t n : {7205, 600}) {
      expect_product(stream, {spec, {Format::bf16}, 1, n, 3840}, 5, Data::normal);
    }
  }
}

// Few rows of large matrices, which go to the small-M kernel on sm_90a.
TEST_F(MatmulOnGpu, FewRowsOfLargeMatrices) {
  Stream stream(device);
  for (const WeightSpec& spec : weight_specs()) {
    if (bits(spec.format) <= 8) expect_product(stream, {spec, {Format::bf16}, 5, 4100, 8192}, 5);
  }
}

// PDL: weights may be prefetched before the previous kernels end; x, which these write, may not.
TEST_F(MatmulOnGpu, StaticWeights) {
  Stream stream(device);
  const int64_t size = 1024;
  std::vector<std::pair<WeightSpec, bool>> weights;  // and whether x is to be rounded to FP8
  for (const WeightSpec& spec : weight_specs()) weights.push_back({spec, false});
  weights.push_back({{Format::fp8_e4m3, true, {Format::f32, 128, 128}}, true});
  for (const auto& [spec, rounds] : weights) {
    const Tensor w = random_weight(spec, size, size, 3).tensor.to(device);
    for (const int64_t m : {1, 20, 50, 100, 200}) {
      SCOPED_TRACE(concat(label(spec), rounds ? " by FP8" : "", " m ", m));
      MatmulProblem p;
      if (rounds) p.quantize_x = parse_quantization("fp8_1x128");
      p.m = m, p.n = p.k = size;
      p.weight = spec.format, p.scaled = spec.scaled;
      if (p.scaled) p.scaling = spec.scaling;
      const Tensor x = random_tensor({m, size}, Format::bf16, 4).to(device);
      const auto last_of_chain = [&](bool constant) {
        p.static_weights = constant;
        const MatmulPlan made = plan(p, device);
        std::vector<Tensor> rows = {x};
        for (int i = 0; i < 4; ++i) {
          rows.push_back(Tensor::zeros({m, size}, Format::bf16, device));
        }
        for (size_t i = 1; i < rows.size(); ++i) {
          run(made, {rows[i - 1], w, rows[i], {}, {}}, stream);
        }
        stream.synchronize();
        return to_floats(rows.back().to(Device::cpu()));
      };
      const auto want = last_of_chain(false);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(last_of_chain(true), want);
    }
  }
}

// Runs again in a graph, and gives the same bits.
TEST_F(MatmulOnGpu, CapturedInAGraph) {
  Stream stream(device);
  MatmulProblem p;
  p.m = 3, p.n = 100, p.k = 512, p.x = Format::f32;
  const MatmulPlan made = plan(p, device);
  MatmulTensors t;
  t.x = random_tensor({3, 512}, Format::f32, 1).to(device);
  t.weight = random_tensor({100, 512}, Format::bf16, 2).to(device);
  t.out = Tensor::zeros({3, 100}, Format::bf16, device);
  run(made, t, stream);
  stream.synchronize();
  const std::vector<float> first = to_floats(t.out.to(Device::cpu()));
  const Graph graph = Graph::capture(stream, [&](Stream& s) { run(made, t, s); });
  for (int i = 0; i < 3; ++i) graph.replay(stream);
  stream.synchronize();
  EXPECT_EQ(to_floats(t.out.to(Device::cpu())), first);
}

}  // namespace
}  // namespace halftone::test

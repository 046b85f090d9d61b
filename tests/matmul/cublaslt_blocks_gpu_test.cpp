// Products of E4M3 in blocks by cuBLASLt on a Hopper GPU.
#include "base/device_memory.h"
#include "cuda/gpu.h"
#include "halftone/graph.h"
#include "matmul/gpu_cases.h"

namespace halftone::test {
namespace {

using Library = MatmulLibrary;

const WeightSpec kGroups = {Format::fp8_e4m3, true, {Format::f32, 1, 128}};
const WeightSpec kBlocks = {Format::fp8_e4m3, true, {Format::f32, 128, 128}};

class MatmulByCublasLtBlocks : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (IsSkipped()) return;
    const GpuCase c{kBlocks, kGroups, 64, 128, 128, Format::bf16, Library::cublaslt};
    const Support support = can_run(problem_of(c), device);
    if (!support.ok) GTEST_SKIP() << support.reason;
  }
  Tensor product(const Tensor& x, const Tensor& w, MatmulOptions o) {
    o.library = Library::cublaslt;
    Stream stream(device);
    return matmul_on(stream, x, w, o);
  }
};

// K in 8 blocks, whose scales of the weight enter as they lie, and in 9, whose are copied into rows
// of 12; N and K of whole blocks and not.
TEST_F(MatmulByCublasLtBlocks, WithinTheBound) {
  Stream stream(device);
  for (const int64_t m : {8, 48, 304}) {
    for (const auto& [n, k] :
         {std::pair<int64_t, int64_t>{256, 1024}, {384, 1152}, {208, 1024}, {256, 1040}}) {
      for (const Format out : {Format::f32, Format::bf16}) {
        const GpuCase c{kBlocks, kGroups, m, n, k, out, Library::cublaslt};
        expect_product(stream, c, 3);
        EXPECT_NE(kernel_of(c, device).find("gemm_cublaslt_blocks"), std::string::npos);
      }
    }
  }
}

// The documentation says multiples of 4; an algorithm may want 8, without which `automatic` takes
// Halftone's kernel. Either is right.
TEST_F(MatmulByCublasLtBlocks, RowsByFours) {
  Stream stream(device);
  for (const int64_t m : {300, 301}) {
    expect_product(stream, {kBlocks, kGroups, m, 256, 1152, Format::bf16}, 3);
  }
}

// Scales of a row or a column of blocks differ by up to 30 times, and an output loses a sixtieth of
// its largest product in each block at most. So two scales that change places, the largest and the
// smallest of those along K or along the rows, lead out of the bounds, and so would scales that are
// read in another order or rows that are another length.
TEST_F(MatmulByCublasLtBlocks, SwappedScalesBreakTheBound) {
  const GpuCase c{kBlocks, kGroups, 48, 384, 1152, Format::f32, Library::cublaslt};
  const Weight x = random_weight(kGroups, c.m, c.k, 1), w = random_weight(kBlocks, c.n, c.k, 2);
  const BoundedProduct want = bounded_product(c, x, w, device);
  MatmulOptions o;
  o.out = c.out;
  const auto right = [&] {
    const Tensor y = product(x.tensor, w.tensor, o);
    return static_cast<bool>(within(to_floats(y), want.values, want.bounds));
  };
  EXPECT_TRUE(right());
  for (const Tensor& scales : {x.tensor.scales(), w.tensor.scales()}) {
    for (const int along : {0, 1}) {
      auto* const first = scales.data<float>();
      float *least = first, *most = first;
      for (int64_t i = 0; i < scales.size(along); ++i) {
        float* const at = first + i * scales.stride(along);
        if (*at < *least) least = at;
        if (*at > *most) most = at;
      }
      ASSERT_LT(*least, *most);
      std::swap(*least, *most);
      EXPECT_FALSE(right()) << shown(scales.shape()) << " along " << along;
      std::swap(*least, *most);
    }
  }
  EXPECT_TRUE(right());
}

// Scales of x that lie side by side for all rows already, those of the weight rows apart.
TEST_F(MatmulByCublasLtBlocks, ScalesAnyhow) {
  const int64_t m = 48, n = 256, k = 1024, groups = k / 128;
  const Weight x = random_weight(kGroups, m, k, 1), w = random_weight(kBlocks, n, k, 2);
  MatmulProblem p;
  p.m = m, p.n = n, p.k = k, p.library = Library::cublaslt, p.out = Format::f32;
  p.x = p.weight = Format::fp8_e4m3, p.x_scaled = p.scaled = true;
  p.x_scaling = kGroups.scaling, p.scaling = kBlocks.scaling;
  const MatmulPlan made = plan(p, device);
  Stream stream(device);
  const auto codes = [&](const Tensor& t) {
    return Tensor::copy_of(t.data(), static_cast<size_t>(t.numel()), t.shape(), t.format())
        .to(device);
  };
  const auto run_with = [&](const Tensor& x_scales, const Tensor& w_scales) {
    const Tensor out = Tensor::zeros({m, n}, Format::f32, device);
    run(made,
        {codes(x.tensor).quantized(p.x_scaling, x_scales),
         codes(w.tensor).quantized(p.scaling, w_scales),
         out,
         {},
         {}},
        stream);
    stream.synchronize();
    return to_floats(out.to(Device::cpu()));
  };
  const Tensor x_scales = x.tensor.scales(), w_scales = w.tensor.scales();
  const Tensor turned = x_scales.transpose(0, 1).contiguous_copy().to(device).transpose(0, 1);
  const Tensor apart = Tensor::zeros({n / 128, groups + 3}, Format::f32);
  for (int64_t i = 0; i < n / 128; ++i) {
    std::copy_n(w_scales.data<float>() + i * groups, groups,
                apart.data<float>() + i * (groups + 3) + 1);
  }
  const std::vector<float> plain = run_with(x_scales.to(device), w_scales.to(device));
  EXPECT_EQ(run_with(turned, w_scales.to(device)), plain);
  EXPECT_EQ(run_with(x_scales.to(device), apart.to(device).slice(1, 1, 1 + groups)), plain);
}

TEST_F(MatmulByCublasLtBlocks, Residuals) {
  const Tensor x = random_weight(kGroups, 48, 1152, 1).tensor;
  const Tensor w = random_weight(kBlocks, 256, 1152, 2).tensor;
  MatmulOptions o;
  o.out = Format::f32;
  std::vector<float> want = to_floats(product(x, w, o));
  // As large as the results; one rounding more.
  o.residual = Tensor::copy_of(want.data(), want.size() * 4, {48, 256}, Format::f32);
  std::vector<double> bounds;
  for (float& v : want) v *= 2, bounds.push_back(0x1p-22 * std::abs(v));
  EXPECT_TRUE(within(to_floats(product(x, w, o)), want, bounds));
  o.residual = Tensor();
  EXPECT_FALSE(within(to_floats(product(x, w, o)), want, bounds));
}

// Every run of a graph reads the scales anew.
TEST_F(MatmulByCublasLtBlocks, CapturedInAGraph) {
  Stream stream(device);
  const GpuCase c{kBlocks, kGroups, 48, 256, 1152, Format::f32, Library::cublaslt};
  const MatmulPlan made = plan(problem_of(c), device);
  MatmulTensors t;
  t.x = random_weight(kGroups, c.m, c.k, 1).tensor.to(device);
  t.weight = random_weight(kBlocks, c.n, c.k, 2).tensor.to(device);
  t.out = Tensor::zeros({c.m, c.n}, Format::f32, device);
  const Graph graph = Graph::capture(stream, [&](Stream& s) { run(made, t, s); });
  for (const uint64_t seed : {3, 5}) {
    const Weight x = random_weight(kGroups, c.m, c.k, seed);
    const Weight w = random_weight(kBlocks, c.n, c.k, seed + 1);
    for (const auto& [to, from] : {std::pair{t.x, x.tensor}, {t.weight, w.tensor}}) {
      copy_memory(device, to.data(), Device::cpu(), from.data(), static_cast<size_t>(to.numel()));
      copy_memory(device, to.scales().data(), Device::cpu(), from.scales().data(),
                  static_cast<size_t>(to.scales().bytes()));
    }
    graph.replay(stream);
    stream.synchronize();
    const BoundedProduct want = bounded_product(c, x, w, device);
    EXPECT_TRUE(within(to_floats(t.out.to(Device::cpu())), want.values, want.bounds));
  }
}

// By itself for many rows alone; where it is asked for, for any that are multiples of 4.
TEST_F(MatmulByCublasLtBlocks, ChosenForManyRows) {
  const auto by_cublaslt = [&](int64_t m, Library library) {
    return kernel_of({kBlocks, kGroups, m, 256, 1024, Format::bf16, library}, device)
               .find("gemm_cublaslt") != std::string::npos;
  };
  EXPECT_FALSE(by_cublaslt(256, Library::automatic));
  EXPECT_TRUE(by_cublaslt(264, Library::automatic));
  EXPECT_FALSE(by_cublaslt(265, Library::automatic));
  EXPECT_FALSE(by_cublaslt(264, Library::halftone));
  EXPECT_TRUE(by_cublaslt(8, Library::cublaslt));
  const GpuCase odd{kBlocks, kGroups, 45, 256, 1024, Format::bf16, Library::cublaslt};
  EXPECT_NE(can_run(problem_of(odd), device).reason.find("m is 45"), std::string::npos);
}

}  // namespace
}  // namespace halftone::test

// Products by cuBLASLt on the GPU.
#include "cuda/gpu.h"
#include "halftone/graph.h"
#include "matmul/gpu_cases.h"

namespace halftone::test {
namespace {

using Library = MatmulLibrary;

class MatmulByCublasLt : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (IsSkipped()) return;
    MatmulProblem p;
    p.m = p.n = p.k = 64, p.library = Library::cublaslt;
    const Support support = can_run(p, device);
    if (!support.ok) GTEST_SKIP() << support.reason;
  }
  Tensor product(const Tensor& x, const Tensor& w, MatmulOptions o, Library library) {
    o.library = library;
    Stream stream(device);
    return matmul_on(stream, x, w, o);
  }
};

const WeightSpec kWhole = {Format::fp8_e4m3, true, {Format::f32, 0, 0}};
const WeightSpec kRows = {Format::fp8_e4m3, true, {Format::f32, 1, 0}};
const WeightSpec kBlocks = {Format::fp8_e4m3, true, {Format::f32, 128, 128}};

TEST_F(MatmulByCublasLt, EveryFormatWithinTheBound) {
  Stream stream(device);
  for (const int64_t m : {1, 45, 300}) {
    for (const WeightSpec& spec :
         {WeightSpec{Format::bf16}, {Format::f16}, {Format::f32}, kWhole, kRows}) {
      for (const Format out :
           {Format::f32, is_plain_float(spec.format) ? spec.format : Format::bf16}) {
        const GpuCase c{spec, spec, m, 48, 1040, out, Library::cublaslt};
        expect_product(stream, c, 3);
        EXPECT_NE(kernel_of(c, device).find("gemm_cublaslt"), std::string::npos);
      }
    }
  }
}

// TF32 is what was asked for: neither f32 nor bf16. Operands of 11 bits are off by 2^-12 of a
// binade's start at most when rounded, 2^-11 when cut: relative L2 of a random sum between a tenth
// of the one and twice the other; bf16's would be four times that.
TEST_F(MatmulByCublasLt, Tf32IsNotF32) {
  const Tensor x = random_tensor({256, 1024}, Format::f32, 1);
  const Tensor w = random_tensor({256, 1024}, Format::f32, 2);
  MatmulOptions o;
  const Tensor want = matmul_reference(x, w);
  const auto error = [&] {
    Stream stream(device);
    return compare(to_floats(matmul_on(stream, x, w, o)), to_floats(want)).relative_l2;
  };
  EXPECT_LT(error(), 1e-6);
  o.tf32 = true;
  const double tf32 = error();
  EXPECT_GT(tf32, 0.1 * 0x1p-12);
  EXPECT_LT(tf32, 2 * 0x1p-11);
  o.library = Library::halftone;
  EXPECT_LT(error(), 1e-6);
  o.tf32 = false, o.library = Library::cublaslt;
  EXPECT_LT(error(), 1e-6);
}

TEST_F(MatmulByCublasLt, ResidualsAndTransposedWeights) {
  const Tensor x = random_tensor({40, 200}, Format::bf16, 1);
  const Tensor w = random_tensor({96, 200}, Format::bf16, 2);
  const Tensor residual = random_tensor({40, 96}, Format::f32, 3);
  const std::vector<float> wide = to_floats(w);
  Expected e = expect(to_floats(x), {wide.begin(), wide.end()}, 40, 96, 200);
  for (size_t i = 0; i < e.values.size(); ++i) {
    e.values[i] += to_floats(residual)[i];
    e.magnitudes[i] += std::abs(to_floats(residual)[i]);
  }
  const std::vector<double> bounds = gpu_bounds(e, 200, Format::f32, 8, true);
  MatmulOptions o;
  o.out = Format::f32, o.residual = residual;
  EXPECT_TRUE(within(to_floats(product(x, w, o, Library::cublaslt)), e.values, bounds));
  o.weight_transposed = true;
  const Tensor turned = w.transpose(0, 1).contiguous_copy();
  EXPECT_TRUE(within(to_floats(product(x, turned, o, Library::cublaslt)), e.values, bounds));
  // A residual less breaks the bound.
  o.residual = Tensor();
  EXPECT_FALSE(within(to_floats(product(x, turned, o, Library::cublaslt)), e.values, bounds));
}

// Rounded on the way, or before: the same bits.
TEST_F(MatmulByCublasLt, QuantisesRowsOfX) {
  const auto expect_same = [&](const char* format, const WeightSpec& spec, int64_t m, int64_t k) {
    SCOPED_TRACE(concat(format, ", ", m, " rows of ", k));
    const QuantizeOptions rounding = parse_quantization(format);
    const Tensor x = random_tensor({m, k}, Format::bf16, 1, Data::outliers);
    const Tensor w = random_weight(spec, 96, k, 2).tensor;
    MatmulOptions o;
    o.out = Format::f32;
    const Tensor given = product(quantize(x, rounding), w, o, Library::cublaslt);
    o.quantize_x = rounding;
    EXPECT_EQ(to_floats(product(x, w, o, Library::cublaslt)), to_floats(given));
  };
  expect_same("fp8_row", kRows, 45, 256);
  if (device.arch() != Arch::sm_90a) return;
  for (const int64_t m : {8, 48, 304}) {
    expect_same("fp8_1x128", kBlocks, m, 256);
    expect_same("fp8_1x128", kBlocks, m, 1024);
  }
}

// What does not lie on 16 bytes is multiplied by Halftone; rows any multiple of them apart are not.
TEST_F(MatmulByCublasLt, RowStrides) {
  Stream stream(device);
  // `gap` elements between the rows on the device, from element `from` on.
  const auto apart = [&](const Tensor& t, int64_t gap, int64_t from) {
    const Tensor all = Tensor::zeros({t.size(0), 256 + gap}, Format::bf16);
    for (int64_t i = 0; i < t.size(0); ++i) {
      std::copy_n(t.data<uint16_t>() + i * 256, 256, all.data<uint16_t>() + i * (256 + gap) + from);
    }
    return all.to(device).slice(1, from, from + 256);
  };
  const auto run_with = [&](const Tensor& x, const Tensor& w, Library library) {
    MatmulProblem p;
    p.m = 33, p.n = 64, p.k = 256, p.library = library;
    const Tensor whole = Tensor::zeros({33, 128}, Format::bf16, device);
    run(plan(p, device), {x, w, whole.slice(1, 0, 64), {}, {}}, stream);
    stream.synchronize();
    return to_floats(whole.to(Device::cpu()));
  };
  const Tensor x = random_tensor({33, 256}, Format::bf16, 1);
  const Tensor w = random_tensor({64, 256}, Format::bf16, 2);
  const Tensor tight_x = apart(x, 0, 0), tight_w = apart(w, 0, 0);
  EXPECT_EQ(run_with(apart(x, 24, 8), apart(w, 40, 0), Library::cublaslt),
            run_with(tight_x, tight_w, Library::cublaslt));
  const Tensor odd = apart(x, 3, 1);
  EXPECT_EQ(run_with(odd, tight_w, Library::cublaslt), run_with(odd, tight_w, Library::halftone));
}

// In a graph, and again: the same bits.
TEST_F(MatmulByCublasLt, CapturedInAGraph) {
  Stream stream(device);
  MatmulProblem p;
  p.m = 64, p.n = 512, p.k = 8192, p.library = Library::cublaslt;  // parts of K
  const MatmulPlan made = plan(p, device);
  MatmulTensors t;
  t.x = random_tensor({p.m, p.k}, Format::bf16, 1).to(device);
  t.weight = random_tensor({p.n, p.k}, Format::bf16, 2).to(device);
  t.out = Tensor::zeros({p.m, p.n}, Format::bf16, device);
  run(made, t, stream);
  stream.synchronize();
  const std::vector<float> first = to_floats(t.out.to(Device::cpu()));
  const Graph graph = Graph::capture(stream, [&](Stream& s) { run(made, t, s); });
  for (int i = 0; i < 3; ++i) graph.replay(stream);
  stream.synchronize();
  EXPECT_EQ(to_floats(t.out.to(Device::cpu())), first);
  t.out = Tensor::zeros({p.m, p.n}, Format::bf16, device);
  run(plan(p, device), t, stream);
  stream.synchronize();
  EXPECT_EQ(to_floats(t.out.to(Device::cpu())), first);
}

TEST_F(MatmulByCublasLt, RefusesWithTheReason) {
  const auto refused = [&](auto change) {
    MatmulProblem p;
    p.m = p.n = p.k = 64, p.library = Library::cublaslt;
    change(p);
    return can_run(p, device).reason;
  };
  EXPECT_NE(refused([](auto& p) { p.bias = true; }).find("bias"), std::string::npos);
  EXPECT_NE(refused([](auto& p) { p.n = 63; }).find("N is 63"), std::string::npos);
  EXPECT_NE(refused([](auto& p) { p.x = Format::f32; }).find("x is f32"), std::string::npos);
  EXPECT_NE(refused([](auto& p) { p.out = Format::f16; }).find("out f16"), std::string::npos);
}

}  // namespace
}  // namespace halftone::test

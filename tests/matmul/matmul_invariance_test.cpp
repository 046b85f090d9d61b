// A row's result is the same bits in any batch, with any number of threads, strides and aliases.
#include "halftone/matmul.h"
#include "matmul/weights.h"

namespace halftone {
namespace {

using namespace test;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.numel() == b.numel() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

TEST(MatmulInvariance, RowsDoNotDependOnTheBatch) {
  at_every_level([] {
    for (const WeightSpec& spec : weight_specs()) {
      for (Format format : {Format::f32, Format::bf16}) {
        SCOPED_TRACE(concat(label(spec), " x ", name(format)));
        const int64_t step = k_step(spec), k = (1300 + step - 1) / step * step, n = 21;
        const Weight w = random_weight(spec, n, k, 1);
        const Tensor x = random_tensor({11, k}, format, 2);
        const Tensor all = matmul(x, w.tensor, Format::f32);
        for (int64_t m : {1, 2, 3, 4, 6}) {
          const Tensor some = matmul(x.slice(0, 11 - m, 11), w.tensor, Format::f32);
          EXPECT_TRUE(same_bits(some, all.slice(0, 11 - m, 11).contiguous_copy())) << "m " << m;
        }
      }
    }
  });
}

TEST(MatmulInvariance, PanelsBeyondTheFirst) {
  const Weight w = random_weight({Format::fp8_e4m3, true, {Format::f32, 1, 128}}, 130, 256, 1);
  const Tensor x = random_tensor({600, 256}, Format::bf16, 2);
  const Tensor all = matmul(x, w.tensor);
  for (int64_t row : {0, 255, 256, 511, 512, 599}) {
    const Tensor one = matmul(x.slice(0, row, row + 1), w.tensor);
    EXPECT_TRUE(same_bits(one, all.slice(0, row, row + 1).contiguous_copy())) << row;
  }
}

TEST(MatmulInvariance, ThreadsAndRepeats) {
  for (const WeightSpec& spec : weight_specs()) {
    SCOPED_TRACE(label(spec));
    const int64_t step = k_step(spec), k = (640 + step - 1) / step * step;
    const Weight w = random_weight(spec, 203, k, 1);
    for (int64_t m : {1, 5, 40}) {
      const Tensor x = random_tensor({m, k}, Format::bf16, 2);
      Stream one(Device::cpu(), 1);
      const Tensor expected = matmul(x, w.tensor, one);
      for (int threads : {1, 2, 3, 5}) {
        Stream stream(Device::cpu(), threads);
        EXPECT_TRUE(same_bits(matmul(x, w.tensor, stream), expected)) << threads << " threads";
      }
    }
  }
}

TEST(MatmulInvariance, StridesBiasAndResidual) {
  at_every_level([] {
    for (Format out : {Format::f32, Format::f16, Format::bf16}) {
      const int64_t m = 5, n = 37, k = 96;
      const Weight w = random_weight({Format::int8, true, {Format::f32, 1, 32}}, n, k, 1);
      const Tensor wide = random_tensor({m, k + 10}, Format::f32, 2);
      const Tensor x = wide.slice(1, 3, 3 + k);
      const Tensor bias = random_tensor({n}, Format::f32, 3);
      const Tensor residual = random_tensor({m, n}, out, 4);

      MatmulProblem problem;
      problem.m = m, problem.n = n, problem.k = k;
      problem.x = Format::f32, problem.weight = Format::int8, problem.out = out;
      problem.scaled = true, problem.scaling = w.tensor.scaling();
      problem.bias = problem.residual = true;
      const MatmulPlan p = plan(problem, Device::cpu());
      EXPECT_NE(describe(p).find("int8"), std::string::npos);

      // The output lies in a wider matrix and is the residual itself.
      const Tensor storage = Tensor::zeros({m, n + 5}, out);
      const Tensor y = storage.slice(1, 2, 2 + n);
      const int64_t size = bits(out) / 8;
      for (int64_t i = 0; i < m; ++i) {
        std::memcpy(y.data<char>() + i * (n + 5) * size, residual.data<char>() + i * n * size,
                    static_cast<size_t>(n * size));
      }
      run(p, {x, w.tensor, y, bias, y}, Stream::default_stream());

      Expected e = expect(to_floats(x), w.values, m, n, k);
      const std::vector<float> b = to_floats(bias), r = to_floats(residual);
      for (size_t i = 0; i < e.values.size(); ++i) {
        const double extra = static_cast<double>(b[i % static_cast<size_t>(n)]) + r[i];
        e.magnitudes[i] += std::abs(b[i % static_cast<size_t>(n)]) + std::abs(r[i]);
        e.values[i] = static_cast<float>(e.values[i] + extra);
      }
      EXPECT_TRUE(within(to_floats(y), e.values, bounds(e, k, out)));
      for (int64_t i = 0; i < m; ++i) {  // nothing beside the view was written
        for (int64_t j : {int64_t{0}, int64_t{1}, n + 2, n + 4}) EXPECT_EQ(storage.at({i, j}), 0);
      }
    }
  });
}

}  // namespace
}  // namespace halftone

// The expected epilogue of a GEMM, on every device.
#pragma once
#include "halftone/activation.h"
#include "halftone/matmul.h"
#include "matmul/weights.h"

namespace halftone::test {

// The epilogue of the GEMM's own FP32 result, by the families it is made of: so the bound is that
// of the activation alone, 16 units of 2^-24, and the roundings of bias and residual.
// `multiply`: the GEMM of x with these options.
template <class Multiply>
void check_epilogue(const MatmulOptions& o, const Tensor& x, Multiply multiply) {
  MatmulOptions plain;
  plain.out = Format::f32;
  plain.bias = o.bias.defined() ? convert(o.bias, Format::f32) : Tensor();
  const Tensor y = multiply(plain);
  const int64_t m = y.size(0), rows = y.size(1), n = o.gated ? rows / 2 : rows;
  Tensor want = y;
  if (o.gated) {
    const Tensor gate = Tensor::empty({m, n}, Format::f32), up = Tensor::empty({m, n}, Format::f32);
    for (int64_t i = 0; i < m * n; ++i) {
      const int64_t row = i / n, j = i % n;
      gate.data<float>()[i] = y.at({row, o.interleaved ? 2 * j : j});
      up.data<float>()[i] = y.at({row, o.interleaved ? 2 * j + 1 : n + j});
    }
    want = gated_reference(gate, up, *o.gated);
  } else {
    want = activation_reference(y, o.activation);
  }
  std::vector<float> values = to_floats(want);
  std::vector<double> bound;
  const std::vector<float> residual =
      o.residual.defined() ? to_floats(o.residual) : std::vector<float>(values.size());
  const Format out = o.out.value_or(x.format());
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = 16 * 0x1p-24 * (std::abs(values[i]) + std::abs(residual[i])) + 0x1p-40;
    values[i] += residual[i];
    bound.push_back(error + unit_roundoff(out) * (std::abs(values[i]) + error));
  }
  EXPECT_TRUE(within(to_floats(multiply(o)), values, bound));
}

}  // namespace halftone::test

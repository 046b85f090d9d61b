// Layer norm, and what both norms share: no weight, weight + 1, bias, residuals apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "halftone/norm.h"
#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

using test::Data;

// With u = 2^-24 and S = n / 16 + 9 additions in the longest chain: the mean is off by at most
// S u max|x|, which shifts every x - mean as much; the variance is off by a relative 2 S u beside
// the square of that shift; root, reciprocal, products and sums add 8 u.
std::vector<double> bounds(const NormProblem& p, const Tensor& x, const std::vector<float>& y,
                           const Tensor& weight, const Tensor& bias) {
  const std::vector<float> in = test::to_floats(x);
  const std::vector<float> w = p.weighted ? test::to_floats(weight) : std::vector<float>();
  const std::vector<float> b = p.bias ? test::to_floats(bias) : std::vector<float>();
  const auto columns = static_cast<size_t>(p.columns);
  const double chain = static_cast<double>(columns) / 16 + 9;
  std::vector<double> bound;
  for (size_t first = 0; first < in.size(); first += columns) {
    double mean = 0, squares = 0, largest = 0;
    for (size_t i = 0; i < columns; ++i) mean += in[first + i];
    mean = p.kind == NormKind::layer ? mean / static_cast<double>(columns) : 0;
    for (size_t i = 0; i < columns; ++i) {
      squares += (in[first + i] - mean) * (in[first + i] - mean);
      largest = std::max(largest, std::abs(double{in[first + i]}));
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + p.eps);
    const double shift =
        p.kind == NormKind::layer ? (chain + 1) * test::kF32Roundoff * largest * scale : 0;
    for (size_t i = 0; i < columns; ++i) {
      const double weigh = p.weighted ? std::abs(w[i] + double{p.weight_offset}) : 1;
      const double add = p.bias ? std::abs(double{b[i]}) : 0;
      const double normal = std::abs(in[first + i] - mean) * scale;
      const double error =
          (normal * (chain + 8) * test::kF32Roundoff + shift + shift * shift) * weigh +
          (normal * weigh + add) * 2 * test::kF32Roundoff;
      bound.push_back(test::rounded_bound(p.x, y[first + i], 0) + error * (1 + 0x1p-7));
    }
  }
  return bound;
}

NormProblem problem(NormKind kind, const Tensor& x, Format weight) {
  NormProblem p;
  p.rows = x.size(0);
  p.columns = x.size(1);
  p.x = x.format();
  p.weight = weight;
  p.kind = kind;
  return p;
}

void expect_norm(const NormProblem& p, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const std::vector<float> reference = test::to_floats(norm_reference(p, x, weight, bias));
  const Tensor out = Tensor::empty(x.shape(), x.format());
  Stream stream;
  run(plan(p, Device::cpu()), {x, weight, out, {}, bias, {}}, stream);
  EXPECT_TRUE(test::within(test::to_floats(out), reference, bounds(p, x, reference, weight, bias)))
      << describe(plan(p, Device::cpu()));
}

TEST(LayerNorm, EveryOptionEqualsTheReference) {
  test::at_every_level([] {
    for (const Format format : test::kPlainFormats) {
      for (const int64_t columns : {1, 2, 15, 16, 17, 33, 64, 65, 127, 1000, 4096}) {
        const Tensor x = test::random_tensor({3, columns}, format, 1);
        for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
          for (int options = 0; options < 8; ++options) {
            NormProblem p = problem(kind, x, options & 1 ? Format::f32 : format);
            p.weighted = (options & 2) != 0;
            p.bias = (options & 4) != 0;
            p.weight_offset = options == 3 || options == 6 ? 1.0f : 0.0f;
            const Tensor v = test::random_tensor({columns}, p.weight, 2);
            expect_norm(p, x, p.weighted ? v : Tensor(), p.bias ? v : Tensor());
          }
        }
      }
    }
  });
}

TEST(LayerNorm, DataOfEveryKind) {
  test::at_every_level([] {
    for (const Data data : {Data::outliers, Data::tiny, Data::huge, Data::all_equal}) {
      const Tensor x = test::random_tensor({5, 333}, Format::f32, 3, data);
      NormProblem p = problem(NormKind::layer, x, Format::f32);
      p.bias = true;
      const Tensor v = test::random_tensor({333}, Format::f32, 4);
      expect_norm(p, x, v, v);
    }
    // A mean far above the deviation: the two passes keep what E[x^2] - E[x]^2 would lose.
    std::vector<float> far = test::random_values(1000, 5);
    for (float& v : far) v += 1000;
    const Tensor x = Tensor::from<float>(far, {1, 1000}, Format::f32);
    const Tensor weight = test::random_tensor({1000}, Format::f32, 6);
    expect_norm(problem(NormKind::layer, x, Format::f32), x, weight, {});
  });
}

TEST(LayerNorm, ResidualInPlaceAndApart) {
  test::at_every_level([] {
    Stream stream;
    for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
      for (const Format format : test::kPlainFormats) {
        const Tensor x = test::random_tensor({4, 137}, format, 7);
        const Tensor before = test::random_tensor({4, 137}, format, 8);
        const Tensor weight = test::random_tensor({137}, format, 9);
        std::vector<float> sum = test::to_floats(x);
        const std::vector<float> old = test::to_floats(before);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += old[i];
        Tensor expected_sum = Tensor::from<float>(sum, {4, 137}, Format::f32);
        if (format != Format::f32) expected_sum = convert(expected_sum, format);
        NormProblem p = problem(kind, x, format);
        const Tensor expected = Tensor::empty({4, 137}, format);
        run(plan(p, Device::cpu()), {expected_sum, weight, expected, {}, {}, {}}, stream);
        p.residual = true;
        const Tensor residual = before.contiguous_copy(), apart = Tensor::zeros({4, 137}, format);
        const Tensor out = Tensor::zeros({4, 137}, format);
        run(plan(p, Device::cpu()), {x, weight, out, residual, {}, apart}, stream);
        EXPECT_TRUE(test::same_bits(out, expected));
        EXPECT_TRUE(test::same_bits(apart, expected_sum));
        EXPECT_TRUE(test::same_bits(residual, before));
        run(plan(p, Device::cpu()), {x, weight, out, residual, {}, {}}, stream);
        EXPECT_TRUE(test::same_bits(out, expected));
        EXPECT_TRUE(test::same_bits(residual, expected_sum));
      }
    }
  });
}

TEST(LayerNorm, SameBitsForAnyThreadsAndAnyBatch) {
  test::at_every_level([] {
    const Tensor x = test::random_tensor({37, 4095}, Format::bf16, 10);
    const Tensor v = test::random_tensor({4095}, Format::bf16, 11);
    Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
    const Tensor y = layer_norm(x, v, v, 1e-5f, one);
    EXPECT_TRUE(test::same_bits(y, layer_norm(x, v, v, 1e-5f, three)));
    EXPECT_TRUE(test::same_bits(y.slice(0, 20, 21), layer_norm(x.slice(0, 20, 21), v, v, 1e-5f)));
  });
}

TEST(LayerNorm, TheToleranceSeesSmallErrors) {
  const Tensor x = test::random_tensor({2, 100}, Format::f32, 12);
  const Tensor v = test::random_tensor({100}, Format::f32, 13);
  NormProblem p = problem(NormKind::layer, x, Format::f32);
  p.bias = true;
  const std::vector<float> reference = test::to_floats(norm_reference(p, x, v, v));
  const std::vector<double> bound = bounds(p, x, reference, v, v);
  const auto breaks = [&](const Tensor& y) {
    return !test::within(test::to_floats(y), reference, bound);
  };
  EXPECT_FALSE(breaks(layer_norm(x, v, v, p.eps)));
  EXPECT_TRUE(breaks(layer_norm(x, v, v, 5e-5f))) << "wrong eps";
  EXPECT_TRUE(breaks(layer_norm(x, v, {}, p.eps))) << "no bias";
  EXPECT_TRUE(breaks(rms_norm(x, v, p.eps))) << "mean kept";
}

TEST(LayerNorm, WrongArgumentsAreNamed) {
  const Tensor x = Tensor::zeros({2, 8}, Format::f32), v = Tensor::zeros({8}, Format::f32);
  test::expect_error([&] { layer_norm(x, v, Tensor::zeros({7}, Format::f32), 1e-5f); },
                     {"layer_norm", "bias", "[7]", "[8]"});
  test::expect_error([&] { layer_norm(x, v, v, NAN); }, {"layer_norm", "eps is nan"});
  Stream stream;
  NormProblem p = problem(NormKind::rms, x, Format::f32);
  p.weighted = false;
  test::expect_error(
      [&] {
        run(plan(p, Device::cpu()), {x, v, x, {}, {}, {}}, stream);
      },
      {"weight is given", "without"});
  p.weight_offset = INFINITY;
  EXPECT_FALSE(can_run(p, Device::cpu()).ok);
}

}  // namespace
}  // namespace halftone

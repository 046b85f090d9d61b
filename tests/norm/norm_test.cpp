#include "halftone/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "support/compare.h"
#include "support/fixtures.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

using test::Data;

// Relative error before the last rounding, in units of u = 2^-24. The sum of squares of n numbers
// runs through chains of at most n / 16 + 9 additions (four sums of four lanes at the narrowest
// level) and one product, all positive; the root halves its error; mean, eps, root, reciprocal and
// two products add less than 6.
double error_of(int64_t columns) {
  return (static_cast<double>(columns) / 32 + 5 + 6) * test::kF32Roundoff;
}

std::vector<double> bounds(const std::vector<float>& reference, int64_t columns, Format out) {
  std::vector<double> bound;
  for (const float r : reference) bound.push_back(test::rounded_bound(out, r, error_of(columns)));
  return bound;
}

void expect_norm(const Tensor& x, const Tensor& weight, float eps) {
  const std::vector<float> reference = test::to_floats(rms_norm_reference(x, weight, eps));
  const Tensor y = rms_norm(x, weight, eps);
  EXPECT_EQ(y.format(), x.format());
  EXPECT_TRUE(
      test::within(test::to_floats(y), reference, bounds(reference, x.size(-1), x.format())))
      << to_string(x) << ", weight " << to_string(weight);
}

TEST(RmsNorm, EqualsTheReferenceAtEveryLevel) {
  test::at_every_level([] {
    for (const Format format : test::kPlainFormats) {
      for (const int64_t columns : {1, 2, 7, 15, 16, 17, 63, 64, 65, 129, 1000, 4096}) {
        const Tensor x = test::random_tensor({3, columns}, format, 1);
        for (const Format w : test::kPlainFormats) {
          expect_norm(x, test::random_tensor({columns}, w, 2), 1e-5f);
        }
      }
    }
  });
}

TEST(RmsNorm, EqualsTransformers) {
  const test::Fixture golden("ops.safetensors");
  const Tensor x = golden.tensor("rms_norm.input"), weight = golden.tensor("rms_norm.weight");
  const std::vector<float> expected = test::to_floats(golden.tensor("rms_norm.output"));
  test::at_every_level([&] {
    std::vector<double> bound;  // the golden result has as many roundings as ours
    for (const float e : expected)
      bound.push_back(2 * test::rounded_bound(Format::f32, e, error_of(48)));
    EXPECT_TRUE(test::within(test::to_floats(rms_norm(x, weight, 1e-5f)), expected, bound));
  });
}

TEST(RmsNorm, DataOfEveryKind) {
  test::at_every_level([] {
    for (const Data data : {Data::outliers, Data::tiny, Data::huge, Data::all_equal}) {
      for (const Format format : {Format::f32, Format::bf16}) {  // f16 has no 1e12
        const Tensor x = test::random_tensor({5, 333}, format, 3, data);
        expect_norm(x, test::random_tensor({333}, format, 4), 1e-6f);
      }
    }
    expect_norm(Tensor::zeros({2, 33}, Format::f32), test::random_tensor({33}, Format::f32, 4),
                1e-6f);
    expect_norm(Tensor::zeros({0, 33}, Format::f32), test::random_tensor({33}, Format::f32, 4),
                1e-6f);
  });
}

TEST(RmsNorm, ResidualEqualsAddThenNorm) {
  test::at_every_level([] {
    for (const Format format : test::kPlainFormats) {
      const Tensor x = test::random_tensor({4, 137}, format, 5);
      const Tensor before = test::random_tensor({4, 137}, format, 6);
      const Tensor weight = test::random_tensor({137}, format, 7);
      std::vector<float> sum = test::to_floats(x);
      const std::vector<float> old = test::to_floats(before);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += old[i];
      const Tensor expected = convert(Tensor::from<float>(sum, {4, 137}, Format::f32), format);
      Tensor residual = before.contiguous_copy();
      const Tensor y = rms_norm_residual(x, residual, weight, 1e-5f);
      EXPECT_TRUE(test::same_bits(residual, expected)) << name(format);
      EXPECT_TRUE(test::same_bits(y, rms_norm(expected, weight, 1e-5f))) << name(format);
    }
  });
}

TEST(RmsNorm, QkNormOfAStridedSlice) {
  test::at_every_level([] {
    // Queries of a fused projection: [tokens, heads + 2 kv_heads, head_dim].
    const Tensor fused = test::random_tensor({5, 6, 24}, Format::bf16, 8);
    const Tensor before = fused.contiguous_copy();
    const Tensor weight = test::random_tensor({24}, Format::f32, 9);
    Tensor queries = fused.slice(1, 1, 4);
    const Tensor expected = rms_norm(queries.contiguous_copy(), weight, 1e-6f);
    qk_norm(queries, weight, 1e-6f);
    EXPECT_TRUE(test::same_bits(queries.contiguous_copy(), expected));
    EXPECT_TRUE(test::same_bits(fused.slice(1, 0, 1).contiguous_copy(),
                                before.slice(1, 0, 1).contiguous_copy()));
    EXPECT_TRUE(test::same_bits(fused.slice(1, 4, 6).contiguous_copy(),
                                before.slice(1, 4, 6).contiguous_copy()));
  });
}

TEST(RmsNorm, StridesAndAliases) {
  test::at_every_level([] {
    const Tensor wide = test::random_tensor({6, 100}, Format::f32, 10);
    const Tensor x = wide.slice(1, 3, 70);
    const Tensor weight = test::random_tensor({67}, Format::bf16, 11);
    const Tensor expected = rms_norm(x.contiguous_copy(), weight, 1e-5f);
    Stream stream;
    const NormPlan p = plan({6, 67, Format::f32, Format::bf16, 1e-5f, false}, Device::cpu());
    run(p, {x, weight, x, {}}, stream);  // in place
    EXPECT_TRUE(test::same_bits(x.contiguous_copy(), expected));
    test::expect_error(
        [&] {
          run(p, {wide.slice(1, 4, 71), weight, x, {}}, stream);
        },
        {"out", "overlaps x"});
  });
}

TEST(RmsNorm, SameBitsForAnyThreadsAndAnyBatch) {
  test::at_every_level([] {
    const Tensor x = test::random_tensor({37, 4096}, Format::bf16, 12);
    const Tensor weight = test::random_tensor({4096}, Format::bf16, 13);
    Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
    const Tensor y = rms_norm(x, weight, 1e-5f, one);
    EXPECT_TRUE(test::same_bits(y, rms_norm(x, weight, 1e-5f, three)));
    EXPECT_TRUE(test::same_bits(y.slice(0, 20, 21), rms_norm(x.slice(0, 20, 21), weight, 1e-5f)));
  });
}

TEST(RmsNorm, TheToleranceSeesSmallErrors) {
  const Tensor x = test::random_tensor({4, 128}, Format::f32, 14);
  const Tensor weight = test::random_tensor({128}, Format::f32, 15);
  const std::vector<float> reference = test::to_floats(rms_norm_reference(x, weight, 1e-5f));
  const std::vector<double> bound = bounds(reference, 128, Format::f32);
  const std::vector<float> good = test::to_floats(rms_norm(x, weight, 1e-5f));
  const auto breaks = [&](const std::vector<float>& result) {
    return !test::within(result, reference, bound);
  };
  EXPECT_FALSE(breaks(good));
  std::vector<float> bad = good;
  std::swap(bad[5], bad[6]);
  EXPECT_TRUE(breaks(bad)) << "swapped elements";
  bad = good;
  bad[200] *= 1 + 0x1p-18f;
  EXPECT_TRUE(breaks(bad)) << "one element off by 2^-18";
  bad = good;
  std::fill(bad.begin() + 128, bad.begin() + 256, 0.0f);
  EXPECT_TRUE(breaks(bad)) << "one row skipped";
  EXPECT_TRUE(breaks(test::to_floats(rms_norm(x, weight, 2e-5f)))) << "wrong eps";
  EXPECT_TRUE(breaks(test::to_floats(
      rms_norm(x.slice(1, 0, 127).contiguous_copy(), weight.slice(0, 0, 127), 1e-5f))))
      << "a column left out";
}

TEST(RmsNorm, WrongArgumentsAreNamed) {
  const Tensor x = Tensor::zeros({2, 8}, Format::f32), weight = Tensor::zeros({8}, Format::f32);
  test::expect_error([&] { rms_norm(x, Tensor::zeros({7}, Format::f32), 1e-5f); },
                     {"weight", "[7]", "[8]"});
  test::expect_error([&] { rms_norm(x, weight, -1.0f); }, {"eps", "-1"});
  test::expect_error(
      [&] {
        rms_norm(Tensor::zeros({2, 8}, Format::int8), weight, 1e-5f);
      },
      {"x is int8", "bf16"});
  test::expect_error([&] { rms_norm(Tensor(), weight, 1e-5f); }, {"x is undefined"});
  test::expect_error(
      [&] {
        rms_norm(Tensor::zeros({2, 0}, Format::f32), weight, 1e-5f);
      },
      {"columns is 0"});
  Tensor short_residual = Tensor::zeros({1, 8}, Format::f32);
  test::expect_error([&] { rms_norm_residual(x, short_residual, weight, 1e-5f); },
                     {"residual", "[1, 8]", "2 rows of 8"});
  EXPECT_NE(describe(plan({2, 8}, Device::cpu())).find("rms norm"), std::string::npos);
  const Support no = can_run(NormProblem{2, 8, Format::i32}, Device::cpu());
  EXPECT_FALSE(no.ok);
  EXPECT_NE(no.reason.find("i32"), std::string::npos);
}

}  // namespace
}  // namespace halftone

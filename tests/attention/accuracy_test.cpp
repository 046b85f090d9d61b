// What the formats cost: cosines against attention on the numbers before they were quantised, the
// smoothing of K, and rows so long that most P are tiny.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/attention_fixture.h"

namespace halftone {
namespace {

using namespace test;

// q, k and v in f32, and what attention on them is in FP64.
struct Exact {
  AttentionProblem problem;
  AttentionTensors tensors;
  std::vector<float> out;
};
Exact exact_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  Exact e;
  AttentionProblem& p = e.problem;
  p.batch = q.size(0), p.query_length = q.size(1), p.key_length = k.size(1);
  p.heads = q.size(2), p.kv_heads = k.size(2), p.head_dim = q.size(3), p.value_dim = v.size(3);
  p.q = p.k = p.v = p.out = Format::f32, p.mode = {Format::f32, Format::f32};
  e.tensors.q = q, e.tensors.k = k, e.tensors.v = v;
  e.out = to_floats(attention_reference(p, e.tensors));
  return e;
}
// The kernel on operands in a mode's formats: its result, and the FP64 result on the same operands.
struct Result {
  std::vector<float> kernel, reference;
};
Result in_mode(const Exact& exact, const AttentionMode& mode) {
  Case c;
  c.problem = exact.problem;
  c.problem.mode = mode, c.problem.q = c.problem.k = mode.qk, c.problem.v = mode.pv;
  c.problem.lse = true;
  c.tensors.q = attention_operand(exact.tensors.q, mode.qk);
  c.tensors.k = attention_operand(exact.tensors.k, mode.qk);
  c.tensors.v = attention_values(exact.tensors.v, mode.pv);
  run_case(&c);
  return {to_floats(c.tensors.out), to_floats(attention_reference(c.problem, c.tensors))};
}

TEST(AttentionAccuracy, CosinesOnNormalData) {
  const Exact exact = exact_attention(random_tensor({1, 32, 4, 128}, Format::f32, 1),
                                      random_tensor({1, 768, 2, 128}, Format::f32, 2),
                                      random_tensor({1, 768, 2, 128}, Format::f32, 3));
  for (const AttentionMode& mode : attention_modes()) {
    const double cosine = compare(in_mode(exact, mode).kernel, exact.out).cosine;
    double least = 0.9999;  // 16 and more bits, and int8
    if (mode.qk == Format::fp8_e4m3 || mode.qk == Format::mxfp8) least = 0.998;
    if (mode.qk == Format::nvfp4) least = 0.99;
    if (mode.qk == Format::mxfp6) least = 0.998;
    if (mode.qk == Format::mxfp6_e3m2) least = 0.995;
    if (mode.qk == Format::mxfp4) least = 0.985;  // a scale of 2^n a 32 numbers
    // P and V in four bits too: 0.1 of relative error each beside 0.1 of Q K^T.
    if (mode.pv == Format::nvfp4) least = 0.98;
    EXPECT_GE(cosine, least) << to_string(mode);
  }
}

// One scale off by an exponent costs more than the thresholds leave.
TEST(AttentionAccuracy, AWrongScaleFallsBelowTheThreshold) {
  const Exact exact = exact_attention(random_tensor({1, 32, 4, 128}, Format::f32, 1),
                                      random_tensor({1, 768, 2, 128}, Format::f32, 2),
                                      random_tensor({1, 768, 2, 128}, Format::f32, 3));
  Case c;
  c.problem = exact.problem, c.problem.lse = true;
  c.problem.mode = {Format::mxfp8, Format::bf16};
  c.problem.q = c.problem.k = Format::mxfp8, c.problem.v = Format::bf16;
  c.tensors.q = attention_operand(exact.tensors.q, Format::mxfp8);
  c.tensors.k = attention_operand(exact.tensors.k, Format::mxfp8);
  c.tensors.v = attention_operand(exact.tensors.v, Format::bf16);
  for (int64_t row = 0; row < 128; ++row) c.tensors.q.scales().data<uint8_t>()[row * 4] += 1;
  run_case(&c);
  EXPECT_LT(compare(to_floats(c.tensors.out), exact.out).cosine, 0.998);
}

TEST(SmoothKeys, AreTheKeysLessTheirMean) {
  const Tensor k = random_tensor({2, 37, 3, 20}, Format::bf16, 4);
  Tensor mean;
  const Tensor smooth = smooth_keys(k, &mean);
  EXPECT_EQ(mean.shape(), (Shape{2, 1, 3, 20}));
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t d = 0; d < 20; ++d) {
        double sum = 0;
        for (int64_t j = 0; j < 37; ++j) sum += k.at({b, j, h, d});
        EXPECT_NEAR(mean.at({b, 0, h, d}), sum / 37, 1e-7);
        for (int64_t j = 0; j < 37; ++j) {
          EXPECT_EQ(smooth.at({b, j, h, d}), k.at({b, j, h, d}) - mean.at({b, 0, h, d}));
        }
      }
    }
  }
  const Tensor one = smooth_keys(k.slice(0, 1, 2).reshape({37, 3, 20}));
  EXPECT_EQ(to_floats(one), to_floats(smooth.slice(0, 1, 2)));
  const Tensor turned = smooth_keys(k.transpose(1, 2).contiguous_copy().transpose(1, 2));
  EXPECT_EQ(to_floats(turned), to_floats(smooth));
  EXPECT_EQ(smooth_keys(Tensor::zeros({1, 0, 2, 4}, Format::f32)).numel(), 0);
  expect_error([&] { smooth_keys(k.reshape({2 * 37 * 3, 20})); }, {"[222, 20]"});
  expect_error([] { smooth_keys(Tensor::zeros({1, 4, 2, 4}, Format::int8)); }, {"k is int8"});
}

// What all keys share says nothing to softmax, and would take most of the range of int8.
TEST(SmoothKeys, SaveInt8FromWhatAllKeysShare) {
  const Tensor q = random_tensor({1, 16, 4, 64}, Format::f32, 5);
  const Tensor v = random_tensor({1, 300, 2, 64}, Format::f32, 7);
  const Tensor k = random_tensor({1, 300, 2, 64}, Format::f32, 6);
  for (int64_t i = 0; i < k.numel(); ++i) {  // a few channels far from 0, as in real models
    if (i % 64 % 13 == 5) k.data<float>()[i] += i % 2 == 0 ? 20.0f : -15.0f;
  }
  const Exact exact = exact_attention(q, k, v);
  AttentionOptions options;
  options.mode = AttentionMode{Format::int8, Format::bf16};
  const auto error = [&](std::optional<bool> smooth) {
    options.smooth_keys = smooth;
    return compare(to_floats(attention(q, k, v, options)), exact.out).relative_l2;
  };
  EXPECT_LT(error({}), 0.02);
  EXPECT_EQ(error({}), error(true));
  EXPECT_GT(error(false), 4 * error(true));

  options.softcap = 20;  // to which the mean matters: not smoothed unasked, an error when asked
  options.smooth_keys = {};
  EXPECT_NO_THROW(attention(q, k, v, options));
  expect_error([&] { error(true); }, {"smooth_keys is true with softcap"});
  options.softcap = 0, options.mode = AttentionMode{Format::bf16, Format::bf16};
  expect_error([&] { error(true); }, {"smooth_keys is true", "bf16+bf16"});
}

constexpr AttentionMode kLongModes[] = {{Format::f32, Format::f32},
                                        {Format::bf16, Format::bf16},
                                        {Format::fp8_e4m3, Format::fp8_e4m3},
                                        {Format::nvfp4, Format::nvfp4}};

// 128k keys of which the first has nine tenths of the weight: the P of the others, e^-14 of the
// largest, are far below what E4M3 and NVFP4 hold beside it.
TEST(AttentionLongRows, TinyEqualPDoNotVanish) {
  constexpr int64_t kKeys = 131072, kDim = 32;
  const Tensor q = random_tensor({1, 1, 1, kDim}, Format::f32, 8);
  const Tensor k = random_tensor({1, kKeys, 1, kDim}, Format::f32, 9);
  const Tensor v = random_tensor({1, kKeys, 1, kDim}, Format::f32, 10);
  const float others = std::log(static_cast<float>(kKeys)) + 0.5f + std::log(9.0f);
  q.data<float>()[0] = 4;
  for (int64_t j = 0; j < kKeys; ++j) k.data<float>()[j * kDim] = 0;
  std::fill_n(k.data<float>(), kDim, 0.0f);
  k.data<float>()[0] = others * std::sqrt(static_cast<float>(kDim)) / 4;
  for (int64_t i = 0; i < v.numel(); ++i) v.data<float>()[i] = (i < kDim ? -1.0f : 1.0f);
  const Exact exact = exact_attention(q, k, v);
  EXPECT_NEAR(exact.out[0], -0.8, 0.05);  // 0.1 of the others, -0.9 of the first
  for (const AttentionMode& mode : kLongModes) {
    const Result r = in_mode(exact, mode);
    // Without the others the result would be -0.9; V of 1 is exact in every format.
    for (size_t i = 0; i < r.kernel.size(); ++i) {
      EXPECT_NEAR(r.kernel[i], r.reference[i], 0.01) << to_string(mode);
    }
    // The rounding of P relative to the largest of the whole row instead of its 256 keys.
    if (mode.pv != Format::fp8_e4m3) continue;
    const double tiny = std::exp(-others);
    EXPECT_EQ(decode_e4m3(encode_e4m3(static_cast<float>(256 * tiny))), 0.0f);
  }
}

// Many keys of about the same weight: errors of P average out, sums lose nothing.
TEST(AttentionLongRows, SumsOf128kKeys) {
  const Exact exact = exact_attention(random_tensor({1, 1, 1, 32}, Format::f32, 11),
                                      random_tensor({1, 131072, 1, 32}, Format::f32, 12),
                                      random_tensor({1, 131072, 1, 32}, Format::f32, 13));
  for (const AttentionMode& mode : kLongModes) {
    const Result r = in_mode(exact, mode);
    const double most = mode.pv == Format::f32     ? 1e-5
                        : mode.pv == Format::bf16  ? 4e-3
                        : mode.pv == Format::nvfp4 ? 0.13
                                                   : 0.04;
    EXPECT_LT(compare(r.kernel, r.reference).relative_l2, most) << to_string(mode);
  }
}

}  // namespace
}  // namespace halftone

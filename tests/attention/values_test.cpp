// V as attention() makes it: scales of rows in fp8 that are powers of two.
#include <cmath>

#include "attention/run_on.h"

namespace halftone {
namespace {

using namespace test;

constexpr Format kFp8 = Format::fp8_e4m3;

// Every scale is a power of two, and the largest code of its row above half of the format's range;
// the simulated GPU makes the same codes and scales.
TEST(AttentionValues, ScalesArePowersOfTwo) {
  const Tensor v = random_tensor({2, 37, 3, 48}, Format::bf16, 1);
  const Tensor made = attention_values(v, kFp8);
  ASSERT_EQ(made.scales().format(), Format::f32);
  const std::vector<float> scales = to_floats(made.scales()), decoded = to_floats(dequantize(made));
  for (size_t row = 0; row < scales.size(); ++row) {
    int exponent = 0;
    ASSERT_EQ(std::frexp(scales[row], &exponent), 0.5f);
    float most = 0;
    for (size_t i = 0; i < 48; ++i) most = std::max(most, std::abs(decoded[row * 48 + i]));
    EXPECT_GT(most / scales[row], 223);
    EXPECT_LE(most / scales[row], 448);
  }
  const Device gpu = Device::simulator(Arch::sm_90a);
  Stream stream(gpu);
  const Tensor there = attention_values(v.to(gpu), kFp8, stream).to(Device::cpu());
  EXPECT_EQ(to_floats(there.scales()), scales);
  EXPECT_EQ(to_floats(dequantize(there)), decoded);
  // Others are operands like any.
  EXPECT_EQ(attention_values(v, Format::bf16).format(), Format::bf16);
  EXPECT_EQ(to_floats(dequantize(attention_values(v, Format::int8))),
            to_floats(dequantize(attention_operand(v, Format::int8))));
  EXPECT_EQ(attention_values(v, kFp8, Stream::default_stream(), 0).scaling(),
            attention_operand(v, kFp8, Stream::default_stream(), 0).scaling());
}

// Query i is 16 times key i, which then has all of its weight: the result is that key's V. Hopper's
// kernel rounds P times the scale of V's row to E4M3: exact with a power of two, up to 2^-4 off
// with the row's own.
TEST(AttentionValues, AWeightOfOneIsExact) {
  constexpr int64_t kCount = 64;
  const Tensor k = random_tensor({1, kCount, 1, 128}, Format::f32, 1);
  const Tensor q = k.contiguous_copy(), v = random_tensor({1, kCount, 1, 128}, Format::f32, 2);
  for (int64_t i = 0; i < q.numel(); ++i) q.data<float>()[i] *= 16;
  Case c;
  AttentionProblem& p = c.problem;
  p.batch = p.heads = p.kv_heads = 1, p.query_length = p.key_length = kCount;
  p.head_dim = p.value_dim = 128;
  p.q = p.k = p.v = kFp8, p.mode = {kFp8, kFp8}, p.out = Format::bf16;
  c.tensors.q = attention_operand(q, kFp8), c.tensors.k = attention_operand(k, kFp8);
  Stream stream(Device::simulator(Arch::sm_90a));
  const auto largest_error = [&](const Tensor& made) {
    c.tensors.v = made;
    run_on(stream, &c);
    const std::vector<float> out = to_floats(c.tensors.out), want = to_floats(dequantize(made));
    double error = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      error = std::max<double>(error, std::abs(out[i] - want[i]) / (std::abs(want[i]) + 1e-3));
    }
    return error;
  };
  EXPECT_LT(largest_error(attention_values(v, kFp8)), 0x1p-8);
  EXPECT_GT(largest_error(attention_operand(v, kFp8)), 0x1p-6);
}

}  // namespace
}  // namespace halftone

// What the Walsh-Hadamard transform of Q and K changes in attention: nothing in exact numbers, and
// in few bits the error that outliers bring.
#include "halftone/hadamard.h"

#include "attention/run_on.h"

namespace halftone {
namespace {

using namespace test;

struct Operands {
  Tensor q, k, v;
};

AttentionProblem problem_of(const Operands& x, Format qk, Format v, Format out) {
  AttentionProblem p;
  p.batch = x.q.size(0), p.query_length = x.q.size(1), p.key_length = x.k.size(1);
  p.heads = x.q.size(2), p.kv_heads = x.k.size(2), p.head_dim = p.value_dim = x.q.size(3);
  p.q = p.k = qk, p.v = v, p.mode = {qk, v}, p.out = out;
  return p;
}

// Sum of squared differences of fp8+bf16 on a device from FP64 on the operands as they were.
double squared_error(Stream& stream, const Operands& x, int64_t scale_tokens, bool transforms) {
  const AttentionProblem exact = problem_of(x, Format::f32, Format::f32, Format::f32);
  AttentionTensors original;
  original.q = x.q, original.k = x.k, original.v = x.v;
  const std::vector<float> truth = to_floats(attention_reference(exact, original));
  Case c;
  c.problem = problem_of(x, Format::fp8_e4m3, Format::bf16, Format::bf16);
  const auto operand = [&](const Tensor& t, bool transformed) {
    return attention_operand(transformed ? hadamard(t) : t, Format::fp8_e4m3,
                             Stream::default_stream(), scale_tokens);
  };
  c.tensors.q = operand(x.q, transforms), c.tensors.k = operand(x.k, transforms);
  c.tensors.v = convert(x.v, Format::bf16);
  run_on(stream, &c);
  const std::vector<float> out = to_floats(c.tensors.out);
  double sum = 0;
  for (size_t i = 0; i < out.size(); ++i) sum += std::pow(double{out[i]} - truth[i], 2);
  return sum;
}

// Every query has an outlier A in one channel c. The keys with the largest k_c decide, of 512
// normal ones about 3: their scores 3 A / sqrt(d) have an error of sqrt(2) e of themselves, e being
// that of a code. A row's scale makes A exact and leaves e, 0.7 of it. Transformed, q and k are
// spread over all channels, and every score has the error sqrt(2) e |q| |k| / d with |q| = sqrt(A^2
// + d) and |k| = sqrt(d): for A of about 32 and d = 128 that is 0.35 of the first.
Operands with_outliers(uint64_t seed) {
  constexpr int64_t kQueries = 64, kKeys = 512;
  const Operands x{random_tensor({1, kQueries, 1, 128}, Format::f32, seed),
                   random_tensor({1, kKeys, 1, 128}, Format::f32, seed + 1),
                   random_tensor({1, kKeys, 1, 128}, Format::f32, seed + 2)};
  for (int64_t i = 0; i < kQueries; ++i) {
    x.q.data<float>()[i * 128 + i * 37 % 128] = 24 + 0.27f * static_cast<float>(i);
  }
  return x;
}

void expect_less_error(Stream& stream) {
  const Operands x = with_outliers(1);
  const double one_scale = squared_error(stream, x, 0, false);
  EXPECT_LT(std::sqrt(squared_error(stream, x, 1, true) / one_scale), 0.5);
  // Per-row scales alone are not enough.
  EXPECT_GT(std::sqrt(squared_error(stream, x, 1, false) / one_scale), 0.5);
}

TEST(AttentionHadamard, HalvesTheErrorOfOutliersInFp8) {
  expect_less_error(Stream::default_stream());
}
TEST(AttentionHadamard, HalvesItOnSimulatedHopper) {
  Stream stream(Device::simulator(Arch::sm_90a), 1);
  expect_less_error(stream);
}

TEST(AttentionHadamard, TheOptionTransformsBothOperands) {
  const Tensor q = random_tensor({2, 5, 4, 64}, Format::f32, 1, Data::outliers);
  const Tensor k = random_tensor({2, 70, 2, 64}, Format::f32, 2, Data::outliers);
  const Tensor v = random_tensor({2, 70, 2, 64}, Format::f32, 3);
  AttentionOptions options;
  options.mode = AttentionMode{Format::int8, Format::bf16};
  options.hadamard = true;
  const Tensor with = attention(q, k, v, options);
  options.hadamard = false;
  const Tensor by_hand = attention(hadamard(q), hadamard(smooth_keys(k)), v, options);
  EXPECT_TRUE(compare(to_floats(with), to_floats(by_hand)).relative_l2 < 1e-5);
  EXPECT_GT(compare(to_floats(with), to_floats(attention(hadamard(q), k, v, options))).relative_l2,
            0.3);  // one of them alone

  options.hadamard = true, options.mode = AttentionMode{Format::bf16, Format::bf16};
  expect_error([&] { attention(q, k, v, options); }, {"hadamard is true", "bf16+bf16"});
  options.mode = AttentionMode{Format::fp8_e4m3, Format::bf16};
  const Tensor coded = attention_operand(k, Format::fp8_e4m3);
  expect_error([&] { attention(q, coded, v, options); }, {"hadamard is true", "k in fp8"});
}

}  // namespace
}  // namespace halftone

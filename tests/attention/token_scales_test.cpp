// A scale for 128 tokens of a head: what makes it, what reads it.
#include "attention/token_scales.h"

#include <gtest/gtest.h>

namespace halftone {
namespace {

using namespace test;

TEST(TokenScales, WithinTheBoundAtEveryLevel) {
  for (Case& c : token_cases()) {
    SCOPED_TRACE(describe(plan(c.problem, Device::cpu())));
    const Bounded reference = bounded(c);
    at_every_level([&] { expect_within(&c, reference); });
  }
}

TEST(TokenScales, TheReferenceReadsThem) {
  const Case c = token_case({2, 140, 300, 4, 2, 64}, {Format::fp8_e4m3, Format::fp8_e4m3}, 7);
  const std::vector<float> out = to_floats(attention_reference(c.problem, c.tensors));
  const Bounded expected = bounded(c);
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_NEAR(out[i], expected.out[i], 2e-6 * (1 + std::abs(out[i])));
  }
}

// Of the last, partial block as of the others, and of each head.
TEST(TokenScales, AScaleOfAnotherBlockBreaksTheBound) {
  const Case original = token_case({1, 64, 300, 2, 2, 64}, {Format::fp8_e4m3, Format::bf16}, 8);
  const Bounded reference = bounded(original);
  for (int64_t i = 0; i < 6; ++i) {
    Case c = token_case({1, 64, 300, 2, 2, 64}, {Format::fp8_e4m3, Format::bf16}, 8);
    ASSERT_EQ(c.tensors.k.scales().shape(), (Shape{1, 3, 2, 1}));
    c.tensors.k.scales().data<float>()[i] *= 2;
    run_case(&c);
    EXPECT_FALSE(within(to_floats(c.tensors.out), reference.out, reference.out_bound)) << i;
  }
}

// Pages of 256 tokens have two scales each.
TEST(TokenScales, PagesHaveTheirOwn) {
  Case c = token_case({1, 5, 600, 2, 1, 64}, {Format::fp8_e4m3, Format::fp8_e4m3}, 9);
  c.problem.causal = true;
  Case paged_rows = paged(make_case({1, 5, 600, 2, 1, 64}, c.problem.mode, 9), 256);
  c.problem.page_size = 256;
  c.tensors.page_table = paged_rows.tensors.page_table;
  const auto pages = [&](const Tensor& t) {
    const Tensor whole =
        attention_operand(dequantize(t), Format::fp8_e4m3, Stream::default_stream(), 128);
    EXPECT_EQ(whole.scales().size(1), 2);
    return whole;
  };
  c.tensors.k = pages(paged_rows.tensors.k), c.tensors.v = pages(paged_rows.tensors.v);
  // The keys in the order of the table.
  std::vector<float> k, v;
  const std::vector<float> all_k = values_of(c.tensors.k), all_v = values_of(c.tensors.v);
  for (int64_t j = 0; j < 600; ++j) {
    const int64_t page = c.tensors.page_table.data<int32_t>()[j / 256];
    const auto from = static_cast<std::ptrdiff_t>((page * 256 + j % 256) * 64);
    k.insert(k.end(), all_k.begin() + from, all_k.begin() + from + 64);
    v.insert(v.end(), all_v.begin() + from, all_v.begin() + from + 64);
  }
  const Bounded reference = bounded_attention(c.problem, values_of(c.tensors.q), k, v);
  at_every_level([&] { expect_within(&c, reference); });
}

TEST(TokenScales, OperandsAreBlocksOfEachHead) {
  const Tensor x = random_tensor({2, 200, 3, 32}, Format::f32, 1, Data::outliers);
  for (const Format format : {Format::fp8_e4m3, Format::int8}) {
    const Tensor t = attention_operand(x, format, Stream::default_stream(), 128);
    ASSERT_EQ(t.shape(), x.shape());
    ASSERT_EQ(t.scales().shape(), (Shape{2, 2, 3, 1}));
    const std::vector<float> values = values_of(t);
    const float most = format == Format::int8 ? 127 : 448;
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t block = 0; block < 2; ++block) {
        for (int64_t head = 0; head < 3; ++head) {
          const float scale = t.scales().at({b, block, head, 0});
          float largest = 0;
          for (int64_t i = block * 128; i < std::min<int64_t>(200, block * 128 + 128); ++i) {
            for (int64_t d = 0; d < 32; ++d) {
              const float value = x.at({b, i, head, d});
              largest = std::max(largest, std::abs(value));
              const auto at = static_cast<size_t>(((b * 200 + i) * 3 + head) * 32 + d);
              EXPECT_LE(std::abs(values[at] - value), scale * most / 16);
            }
          }
          EXPECT_FLOAT_EQ(scale, largest / most);
        }
      }
    }
  }
}

TEST(TokenScales, OtherExtentsAreErrors) {
  const Tensor codes = Tensor::zeros({1, 300, 2, 16}, Format::fp8_e4m3);
  const auto with = [&](const Shape& shape) {
    return codes.quantized({Format::f32, 1, 0}, Tensor::zeros(shape, Format::f32));
  };
  EXPECT_NO_THROW(with({1, 3, 2, 1}));
  EXPECT_EQ(with({1, 3, 2, 1}).slice(1, 128, 300).scales().shape(), (Shape{1, 2, 2, 1}));
  for (const int64_t extent : {2, 4, 299}) EXPECT_THROW(with({1, extent, 2, 1}), Error);
  const Tensor packed = Tensor::zeros({300, 2, 16}, Format::fp8_e4m3);
  EXPECT_THROW(packed.quantized({Format::f32, 1, 0}, Tensor::zeros({3, 2, 1}, Format::f32)), Error);
  EXPECT_THROW(attention_operand(Tensor::zeros({1, 3, 2, 16}, Format::f32), Format::fp8_e4m3,
                                 Stream::default_stream(), 64),
               Error);
}

}  // namespace
}  // namespace halftone

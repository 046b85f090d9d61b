// Every mode within its bound at every ISA level.
#include <gtest/gtest.h>

#include "attention/attention_fixture.h"
#include "base/message.h"

namespace halftone {
namespace {

using namespace test;

TEST(AttentionModes, EveryModeStaysWithinItsBound) {
  for (const AttentionMode& mode : attention_modes()) {
    for (const Data data : {Data::normal, Data::outliers}) {
      SCOPED_TRACE(to_string(mode));
      Case c = make_case({1, 37, 300, 4, 2, 64}, mode, 1, data);
      c.problem.causal = true;
      const Bounded reference = bounded(c);
      at_every_level([&] { expect_within(&c, reference); });
    }
  }
}

TEST(AttentionModes, PlainQueriesOverEveryCache) {
  at_every_level([] {
    for (const Format q : {Format::f32, Format::f16, Format::bf16}) {
      for (const Format kv : {Format::bf16, Format::fp8_e4m3, Format::nvfp4, Format::mxfp8,
                              Format::mxfp6, Format::mxfp6_e3m2, Format::mxfp4, Format::int8}) {
        const AttentionMode mode{kv, Format::bf16};
        Case decode = make_case({1, 1, 530, 8, 2, 96}, mode, q, kv, kv);
        expect_within_bound(&decode);
        Case per_tensor = make_case({1, 3, 20, 2, 1, 32}, mode, q, kv, kv, 2, Data::normal, false);
        expect_within_bound(&per_tensor);
      }
      Case f32 = make_case({1, 2, 70, 2, 2, 48}, {Format::f32, Format::f32}, q, Format::nvfp4,
                           Format::fp8_e4m3);
      expect_within_bound(&f32);
    }
  });
}

// The decode kernels, which dequantise whole panels of 64 columns of V in registers. Queries in
// bf16 are exact, so that the bound of lse is that of the scores' sums alone.
TEST(AttentionDecode, EveryCacheStaysWithinItsBound) {
  at_every_level([] {
    for (const Format q : {Format::f32, Format::bf16}) {
      for (const Format kv : {Format::bf16, Format::fp8_e4m3, Format::nvfp4, Format::mxfp8,
                              Format::mxfp4, Format::int8}) {
        Case one = make_case({1, 1, 530, 8, 2, 128}, {kv, Format::bf16}, q, kv, kv, 3);
        expect_within_bound(&one);
        Case two = make_case({2, 2, 70, 6, 2, 96, 64}, {kv, Format::bf16}, q, kv, kv, 4);
        expect_within_bound(&two);
      }
    }
  });
}

// P of such a key is 1 and of the others 0, so that O is V without a rounding.
TEST(AttentionDecode, AKeyThatTakesAllGivesItsV) {
  constexpr int64_t kHeads = 4, kKeys = 6, kDim = 128;
  const Tensor row = convert(random_tensor({kDim}, Format::f32, 1), Format::bf16);
  const std::vector<float> direction = to_floats(row);
  const Tensor q = Tensor::empty({1, 1, kHeads, kDim}, Format::f32);
  for (int64_t i = 0; i < q.numel(); ++i)
    q.data<float>()[i] = direction[static_cast<size_t>(i % kDim)];
  at_every_level([&] {
    for (const Format kv : {Format::bf16, Format::nvfp4, Format::mxfp8, Format::mxfp4}) {
      for (int64_t taken = 0; taken < kKeys; ++taken) {
        SCOPED_TRACE(concat(name(kv), " key ", taken));
        Case c =
            make_case({1, 1, kKeys, kHeads, 1, kDim}, {kv, Format::bf16}, Format::bf16, kv, kv);
        const Tensor k = Tensor::empty({1, kKeys, 1, kDim}, Format::f32);
        for (int64_t i = 0; i < k.numel(); ++i) {
          const float times = i / kDim == taken ? 16.0f : -16.0f;
          k.data<float>()[i] = times * direction[static_cast<size_t>(i % kDim)];
        }
        c.tensors.q = convert(q, Format::bf16), c.tensors.k = in_format(k, kv);
        run_case(&c);
        const std::vector<float> v = values_of(c.tensors.v), out = to_floats(c.tensors.out);
        for (size_t i = 0; i < out.size(); ++i) {
          const float wanted = v[static_cast<size_t>(taken * kDim) + i % kDim];
          ASSERT_LE(std::abs(out[i] - wanted), std::abs(wanted) * 0x1p-22f) << "element " << i;
        }
      }
    }
  });
}

TEST(AttentionModes, ReferenceAgreesWithTheIndependentOne) {
  for (const AttentionMode& mode : attention_modes()) {
    if (mode.pv == Format::nvfp4) continue;  // its bound's P is rounded, the reference's is not
    Case c = make_case({2, 5, 70, 4, 2, 64, 32}, mode, 3);
    c.problem.window_left = 40;
    const Bounded expected = bounded(c);
    Tensor lse;
    const std::vector<float> out = to_floats(attention_reference(c.problem, c.tensors, &lse));
    // Both are FP64; dequantize rounds element * scale to f32, which moves scores by 2^-23.
    for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected.out[i], 2e-6);
    for (size_t i = 0; i < expected.lse.size(); ++i) {
      EXPECT_NEAR(lse.data<float>()[i], expected.lse[i], 2e-6);
    }
  }
}

// A wrong scale, a skipped key and swapped rows must each leave the bound, in every mode.
TEST(AttentionModes, SmallErrorsBreakTheBound) {
  for (const AttentionMode& mode : attention_modes()) {
    SCOPED_TRACE(to_string(mode));
    const Case original = make_case({1, 16, 37, 2, 1, 64}, mode, 4);
    const Bounded reference = bounded(original);
    const auto breaks = [&](Case mutant) {
      run_case(&mutant);
      return !within(to_floats(mutant.tensors.out), reference.out, reference.out_bound);
    };
    EXPECT_FALSE(breaks(original));
    Case swapped = original;
    swapped.tensors.q = Tensor::empty(original.tensors.q.shape(), Format::f32);
    std::vector<float> q = values_of(original.tensors.q);
    std::swap_ranges(q.begin(), q.begin() + 64, q.begin() + 128);
    swapped.tensors.q = Tensor::from<float>(q, original.tensors.q.shape(), Format::f32);
    swapped.problem.q = Format::f32;
    EXPECT_TRUE(breaks(swapped));
    Case skipped = original;
    skipped.problem.key_length = 36;
    skipped.problem.variable_length = true;
    const int32_t used = 36;
    skipped.tensors.seqused_k = Tensor::copy_of(&used, 4, {1}, Format::i32);
    EXPECT_TRUE(breaks(skipped));
    for (const bool of_key : {true, false}) {
      Case scaled = original;
      Tensor& t = of_key ? scaled.tensors.k : scaled.tensors.v;
      std::vector<float> values = values_of(t);
      const int64_t block = is_block(t.format()) ? (t.format() == Format::nvfp4 ? 16 : 32) : 64;
      for (int64_t i = 0; i < block; ++i) values[static_cast<size_t>(5 * 64 + i)] *= 2;
      // In f32 products, so that the doubled block needs no format of its own.
      Tensor plain = Tensor::from<float>(values, t.shape(), Format::f32);
      const bool f32 = mode.qk == Format::f32;
      const Format target = f32 ? Format::f32 : mode.qk == Format::f16 ? Format::f16 : Format::bf16;
      const Tensor again = convert(plain, target);
      scaled.problem.mode = {target, target};
      if (!is_plain_float(scaled.problem.q)) {
        scaled.tensors.q = Tensor::from<float>(values_of(original.tensors.q),
                                               original.tensors.q.shape(), Format::f32);
        scaled.problem.q = Format::f32;
      }
      const Tensor other =
          convert(Tensor::from<float>(values_of(of_key ? scaled.tensors.v : scaled.tensors.k),
                                      t.shape(), Format::f32),
                  target);
      scaled.tensors.k = of_key ? again : other;
      scaled.tensors.v = of_key ? other : again;
      scaled.problem.k = scaled.problem.v = target;
      EXPECT_TRUE(breaks(scaled)) << (of_key ? "K" : "V");
    }
  }
}

}  // namespace
}  // namespace halftone

// Softcap, mask tensors, sinks and chunks, in every mode, prefill and decode.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "attention/attention_rules.h"

namespace halftone {
namespace {

using namespace test;

constexpr AttentionMode kBf16{Format::bf16, Format::bf16};

TEST(AttentionScoreMods, EveryModeStaysWithinItsBound) {
  for (const AttentionMode& mode : attention_modes()) {
    for (const Rule& rule : kRules) {
      for (const int64_t queries : {1, 19}) {
        SCOPED_TRACE(to_string(mode) + " " + rule.name + " " + std::to_string(queries));
        Case c = make_case({1, queries, 290, 4, 2, 32}, mode, 40);
        rule.set(c);
        const Bounded reference = bounded(c);
        at_every_level([&] { expect_within(&c, reference); });
      }
    }
  }
}

TEST(AttentionScoreMods, ReferenceAgreesWithTheIndependentOne) {
  for (const Rule& rule : kRules) {
    SCOPED_TRACE(rule.name);
    Case c = make_case({1, 9, 290, 4, 2, 32, 16}, {Format::mxfp8, Format::bf16}, 43);
    rule.set(c);
    const Bounded expected = bounded(c);
    Tensor lse;
    const std::vector<float> out = to_floats(attention_reference(c.problem, c.tensors, &lse));
    for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected.out[i], 2e-6);
    for (size_t i = 0; i < expected.lse.size(); ++i) {
      EXPECT_NEAR(lse.data<float>()[i], expected.lse[i], 2e-6);
    }
  }
}

// A rule that is slightly off leaves the bound.
TEST(AttentionScoreMods, SmallErrorsBreakTheBound) {
  const AttentionMode f32{Format::f32, Format::f32};
  const auto breaks = [&](const Rule& rule, const std::function<void(Case&)>& change) {
    for (const int64_t queries : {1, 19}) {
      Case c = make_case({1, queries, 290, 4, 2, 32}, f32, 44);
      rule.set(c);
      const Bounded reference = bounded(c);
      expect_within(&c, reference);
      change(c);
      run_case(&c);
      EXPECT_FALSE(within(to_floats(c.tensors.out), reference.out, reference.out_bound))
          << rule.name;
      EXPECT_FALSE(within(to_floats(c.tensors.lse), reference.lse, reference.lse_bound))
          << rule.name;
    }
  };
  breaks(kRules[0], [](Case& c) { c.problem.softcap *= 1.001f; });
  breaks(kRules[1], [](Case& c) { c.problem.attention_chunk_size += 1; });
  breaks(kRules[2], [](Case& c) { c.tensors.sinks = Tensor::from({2.51f, -1, 0, 4}, {4}); });
  breaks(kRules[3], [](Case& c) { c.tensors.mask.data<uint8_t>()[77] ^= 1; });
  breaks(kRules[4], [](Case& c) {
    c.tensors.mask = additive_mask(c.tensors.mask.shape(), Format::bf16, 42),
    c.problem.mask = Format::bf16;
  });
}

// Whatever the extents, the strides and the format of a mask: the bits of the whole one in f32.
TEST(AttentionMasks, BroadcastsStridesAndFormatsGiveTheSameBits) {
  at_every_level([] {
    for (const int64_t queries : {2, 21}) {
      const Case c = make_case({2, queries, 150, 4, 2, 32}, kBf16, 45);
      const Shape whole{2, 4, queries, 150};
      const auto same = [&](const Tensor& small, const char* what) {
        SCOPED_TRACE(what);
        Tensor dense = Tensor::empty(whole, Format::f32);
        for (int64_t at = 0; at < dense.numel(); ++at) {
          dense.data<float>()[at] = static_cast<float>(mask_term(
              small, at / 150 / queries / 4, at / 150 / queries % 4, at / 150 % queries, at % 150));
        }
        Case a = c, b = c;
        set_mask(&a, small), set_mask(&b, dense);
        run_case(&a), run_case(&b);
        expect_same(a, b);
      };
      same(boolean_mask(whole, 46), "boolean");
      same(boolean_mask({1, 1, queries, 150}, 46), "boolean for all heads");
      same(boolean_mask({2, 1, 1, 150}, 46), "boolean of padding");
      same(boolean_mask({1, 1, queries, 1}, 46), "boolean of queries");
      for (const Format format : {Format::f32, Format::f16, Format::bf16}) {
        same(additive_mask({2, 1, queries, 150}, format, 47), name(format));
        same(additive_mask({1, 4, 1, 150}, format, 47), name(format));
      }
      same(additive_mask({1, 1, 150, queries}, Format::bf16, 48).transpose(2, 3), "transposed");
      same(boolean_mask({150, 4, queries, 2}, 49).transpose(0, 3), "keys outermost");
      const Tensor row = additive_mask({1, 1, queries, 150}, Format::f32, 50);
      same(Tensor::view(row.data(), whole, {0, 0, 150, 1}, Format::f32), "stride 0");
      const Tensor wide = additive_mask({2, 4, queries, 200}, Format::f16, 51);
      same(wide.slice(3, 50, 200), "part of a longer one");
    }
  });
}

TEST(AttentionMasks, RowsWithAllKeysMasked) {
  at_every_level([] {
    for (const int64_t queries : {1, 30}) {
      for (const bool sinks : {false, true}) {
        Case c = make_case({1, queries, 300, 2, 1, 32}, kBf16, 52);
        Tensor mask = boolean_mask({1, 1, queries, 300}, 53);
        std::memset(mask.data<uint8_t>() + (queries - 1) * 300, 0, 300);
        set_mask(&c, mask);
        if (sinks) set_sinks(&c, Tensor::from({0.5f, -3}, {2}));
        expect_within_bound(&c);
        const std::vector<float> out = to_floats(c.tensors.out);
        for (size_t x = out.size() - 64; x < out.size(); ++x) EXPECT_EQ(out[x], 0.0f);
        const float expected = sinks ? -3.0f : -INFINITY;
        EXPECT_EQ(c.tensors.lse.at({0, 1, queries - 1}), expected);
      }
    }
    // The lowest number instead of -inf: the mean of all values, as in FP64.
    Case c = make_case({1, 1, 100, 2, 1, 32}, {Format::f32, Format::f32}, 54);
    Tensor lowest = Tensor::empty({1, 1, 1, 100}, Format::f32);
    std::fill_n(lowest.data<float>(), 100, -3.4028235e38f);
    set_mask(&c, lowest);
    run_case(&c);
    for (int64_t d = 0; d < 32; ++d) {
      double mean = 0;
      for (int64_t j = 0; j < 100; ++j) mean += c.tensors.v.at({0, j, 0, d}) / 100.0;
      EXPECT_NEAR(c.tensors.out.at({0, 0, 0, d}), mean, 1e-6);
    }
  });
}

// Prefill in one call, in pieces and token by token; pages, batches and threads.
TEST(AttentionScoreMods, BitsDoNotDependOnTheCall) {
  at_every_level([] {
    for (const AttentionMode& mode : {kBf16, AttentionMode{Format::nvfp4, Format::nvfp4},
                                      AttentionMode{Format::f32, Format::f32}}) {
      for (const Rule& rule : kRules) {
        SCOPED_TRACE(to_string(mode) + " " + rule.name);
        Case whole = make_case({1, 290, 290, 4, 2, 32}, mode, 55);
        rule.set(whole);
        whole.problem.causal = true;
        run_case(&whole);
        const std::vector<float> expected = to_floats(whole.tensors.out);
        for (const auto& [begin, end] :
             {std::pair<int64_t, int64_t>{0, 1}, {69, 71}, {100, 200}, {255, 257}, {289, 290}}) {
          Case part = whole;
          part.problem.query_length = end - begin, part.problem.key_length = end;
          part.tensors.q = whole.tensors.q.slice(1, begin, end);
          if (part.tensors.mask.defined()) {
            part.tensors.mask = part.tensors.mask.slice(2, begin, end).slice(3, 0, end);
          }
          run_case(&part, 3);
          const std::vector<float> got = to_floats(part.tensors.out);
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(got[i], expected[static_cast<size_t>(begin) * 128 + i]) << begin;
          }
        }
      }
    }
  });
}

TEST(AttentionSinks, OfAnySize) {
  at_every_level([] {
    for (const float sink : {-INFINITY, -200.0f, 0.0f, 30.0f, 200.0f}) {
      Case c = make_case({1, 3, 40, 2, 1, 32}, {Format::f32, Format::f32}, 56);
      set_sinks(&c, Tensor::from({sink, 1}, {2}));
      expect_within_bound(&c);
    }
  });
}

// Whole panels that are masked for every row of a tile are skipped, K and V alike.
TEST(AttentionMasks, MaskedBeginningsAndEndsNeedNotBeFinite) {
  at_every_level([] {
    Case c = make_case({1, 30, 512, 2, 1, 64}, kBf16, 57);
    Tensor mask = boolean_mask({1, 1, 30, 512}, 58);
    for (int64_t i = 0; i < 30; ++i) {
      std::memset(mask.data<uint8_t>() + i * 512, 0, 128);
      std::memset(mask.data<uint8_t>() + i * 512 + 320, 0, 192);
    }
    set_mask(&c, mask);
    run_case(&c);
    Case poisoned = c;
    for (Tensor* t : {&poisoned.tensors.k, &poisoned.tensors.v}) {
      *t = t->contiguous_copy();
      std::memset(t->data<uint16_t>(), 0xff, 128 * 64 * 2);
      std::memset(t->data<uint16_t>() + 320 * 64, 0xff, 192 * 64 * 2);
    }
    run_case(&poisoned);
    expect_same(c, poisoned);
  });
}

// `t` with NaN in all numbers of a key of one head of 64.
Tensor with_nan(const Tensor& t, int64_t key) {
  const Tensor poisoned = (t.has_scales() ? t.scales() : t).contiguous_copy();
  const int64_t row = poisoned.bytes() / t.size(1);
  std::memset(poisoned.data<char>() + key * row, 0xff, static_cast<size_t>(row));
  return t.has_scales() ? t.quantized(t.scaling(), poisoned, t.tensor_scale()) : poisoned;
}

// NaN in K and V of some keys reaches the rows to which they are visible, and no others, whose bits
// stay.
void expect_nan_only_where_seen(const Case& c, int64_t key) {
  const AttentionProblem& p = c.problem;
  Case poisoned = c;
  poisoned.tensors.k = with_nan(c.tensors.k, key);
  poisoned.tensors.v = with_nan(c.tensors.v, key);
  run_case(&poisoned);
  const std::vector<float> clean = to_floats(c.tensors.out), got = to_floats(poisoned.tensors.out);
  for (size_t i = 0; i < got.size(); ++i) {
    const int64_t query = static_cast<int64_t>(i) / (p.heads * p.value_dim);
    const bool seen = query + p.key_length - p.query_length >= key &&
                      (!p.mask || mask_term(c.tensors.mask, 0, 0, query, key) == 0);
    if (seen) {
      ASSERT_TRUE(std::isnan(got[i])) << query << " sees " << key;
    } else {
      ASSERT_EQ(got[i], clean[i]) << query << " does not see " << key;
    }
  }
}

TEST(AttentionMasks, MaskedKeysNeedNotBeFinite) {
  constexpr int64_t kKeys = 300;
  at_every_level([] {
    for (const AttentionMode& mode : attention_modes()) {
      for (const int64_t queries : {int64_t{120}, int64_t{4}}) {  // prefill and decode
        for (const bool masked : {false, true}) {
          SCOPED_TRACE(to_string(mode) + (masked ? ", masked" : ", causal") +
                       (queries == 4 ? ", decode" : ""));
          Case c = make_case({1, queries, kKeys, 2, 1, 64}, mode, 59);
          c.problem.causal = true;
          if (masked) set_mask(&c, boolean_mask({1, 1, queries, kKeys}, 60));
          run_case(&c);
          for (const int64_t key : {int64_t{3}, int64_t{190}, kKeys - 3, kKeys - 1}) {
            expect_nan_only_where_seen(c, key);
          }
        }
      }
    }
  });
}

// One number of V that is not finite spoils its own column.
TEST(AttentionMasks, TheOtherColumnsOfAMaskedKeyAreKept) {
  at_every_level([] {
    for (const int64_t queries : {int64_t{120}, int64_t{4}}) {
      Case c = make_case({1, queries, 300, 2, 1, 64}, kBf16, 61);
      c.problem.causal = true;
      run_case(&c);
      Case poisoned = c;
      poisoned.tensors.v = c.tensors.v.contiguous_copy();
      poisoned.tensors.v.data<uint16_t>()[298 * 64 + 5] = 0x7f80;
      run_case(&poisoned);
      const std::vector<float> clean = to_floats(c.tensors.out);
      const std::vector<float> got = to_floats(poisoned.tensors.out);
      for (size_t i = 0; i < got.size(); ++i) {
        const bool spoilt = i / 128 + 2 >= static_cast<size_t>(queries) && i % 64 == 5;
        if (spoilt) {
          ASSERT_TRUE(std::isinf(got[i])) << i;
        } else {
          ASSERT_EQ(got[i], clean[i]) << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace halftone

// Problems for the general form of E4M3 attention on sm_90a, on a GPU or a simulated one.
#pragma once
#include "attention/sm80/cases.h"
#include "attention/token_scales.h"

namespace halftone::test {

inline constexpr AttentionMode kFp8Mode{Format::fp8_e4m3, Format::fp8_e4m3};

inline Case fp8_layout_case(const Sizes& s, uint64_t seed, bool per_row = true,
                            Data data = Data::normal) {
  const Format fp8 = Format::fp8_e4m3;
  Case c = make_case(s, kFp8Mode, fp8, fp8, fp8, seed, data, per_row);
  c.problem.out = Format::bf16, c.problem.causal = true;
  // Where all else is plain this asks for the general form.
  c.problem.variable_length = true;
  return c;
}

inline Bounded bounded_fp8(const Case& c) {
  const AttentionProblem& p = c.problem;
  const int64_t widest = std::max(p.head_dim, p.value_dim);
  const int64_t keys = widest <= 64 ? 96 : p.head_dim <= 192 && p.value_dim <= 128 ? 128 : 64;
  return bounded_attention(p, values_of(c.tensors.q), values_of(c.tensors.k),
                           values_of(c.tensors.v), c.tensors.mask, c.tensors.sinks, {true, keys});
}

// Every rule, instance and kind of scale, pages, and widths that TMA does not take.
inline std::vector<Case> fp8_layout_cases() {
  std::vector<Case> cases;
  uint64_t seed = 30;
  for (const Rule& rule : kRules) {
    cases.push_back(fp8_layout_case({1, 70, 150, 4, 2, 64}, ++seed, cases.size() % 4 == 0));
    rule.set(cases.back());
    cases.push_back(fp8_layout_case({2, 64, 260, 4, 2, 128}, ++seed, cases.size() % 4 == 1));
    rule.set(cases.back());
  }
  cases.push_back(fp8_layout_case({1, 66, 140, 4, 2, 256}, ++seed));
  kRules[4].set(cases.back());
  cases.push_back(fp8_layout_case({1, 130, 130, 2, 1, 192, 128}, ++seed, true, Data::outliers));
  cases.push_back(fp8_layout_case({1, 67, 131, 2, 1, 41, 39}, ++seed));
  cases.push_back(fp8_layout_case({1, 66, 90, 1, 1, 100, 120}, ++seed, false));
  cases.back().problem.softmax_scale = -0.1f;
  Case blocks = token_case({2, 140, 300, 4, 2, 128}, kFp8Mode, ++seed);
  blocks.problem.out = Format::bf16, blocks.problem.softcap = 2;
  cases.push_back(blocks);
  return cases;
}

inline void expect_fp8_layout(Stream& stream, Case c) {
  const std::string how = describe(plan(c.problem, stream.device()));
  SCOPED_TRACE(how);
  EXPECT_NE(how.find("general form"), std::string::npos);
  run_on(stream, &c);
  const Bounded reference = bounded_fp8(c);
  EXPECT_TRUE(within(to_floats(c.tensors.out), reference.out, reference.out_bound));
  EXPECT_TRUE(within(to_floats(c.tensors.lse), reference.lse, reference.lse_bound));
}

inline void expect_fp8_pages(Stream& stream) {
  for (const int64_t dim : {64, 128, 256}) {
    Case c = fp8_layout_case({2, 70, 150, 4, 2, dim}, 5);
    run_on(stream, &c);
    for (const int64_t page_size : {7, 16, 64, 256}) {
      SCOPED_TRACE("heads of " + std::to_string(dim) + ", pages of " + std::to_string(page_size));
      Case other = paged(c, page_size);
      run_on(stream, &other);
      expect_same(c, other);
    }
  }
}

// Sequences of several lengths side by side, one without keys.
inline void expect_fp8_packed(Stream& stream) {
  const std::vector<int32_t> query_ends = {0, 3, 80, 84, 160}, key_ends = {0, 70, 170, 170, 375};
  const Case all = fp8_layout_case({1, 160, 375, 4, 2, 128}, 6);
  const auto cut = [](const Tensor& t, int64_t first, int64_t begin, int64_t end) {
    std::vector<int64_t> rows(static_cast<size_t>(end - begin));
    std::iota(rows.begin(), rows.end(), begin);
    return rearrange(t, first, end - begin, rows);
  };
  Case packed = all;
  packed.problem.batch = 4, packed.problem.query_length = 77, packed.problem.key_length = 205;
  packed.tensors.q = cut(all.tensors.q, -1, 0, 160);
  packed.tensors.k = cut(all.tensors.k, -1, 0, 375);
  packed.tensors.v = cut(all.tensors.v, -1, 0, 375);
  packed.tensors.cu_seqlens_q = i32(query_ends, {5});
  packed.tensors.cu_seqlens_k = i32(key_ends, {5});
  run_on(stream, &packed);
  const std::vector<float> out = to_floats(packed.tensors.out);
  for (size_t b = 0; b < 4; ++b) {
    Case one = all;
    one.problem.query_length = query_ends[b + 1] - query_ends[b];
    one.problem.key_length = key_ends[b + 1] - key_ends[b];
    one.tensors.q = cut(all.tensors.q, 1, query_ends[b], query_ends[b + 1]);
    one.tensors.k = cut(all.tensors.k, 1, key_ends[b], key_ends[b + 1]);
    one.tensors.v = cut(all.tensors.v, 1, key_ends[b], key_ends[b + 1]);
    const Bounded reference = bounded_fp8(one);
    const auto first = out.begin() + query_ends[b] * 4 * 128;
    const std::vector<float> own(first, first + static_cast<int64_t>(reference.out.size()));
    EXPECT_TRUE(within(own, reference.out, reference.out_bound)) << "sequence " << b;
  }
}

// Behind the keys in use there is NaN.
inline void expect_fp8_padding(Stream& stream) {
  Case c = fp8_layout_case({2, 65, 200, 2, 1, 64}, 7);
  Case shorter = c;
  shorter.problem.key_length = 130;
  const auto cut = [](const Tensor& t) {
    std::vector<int64_t> rows;
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t j = 0; j < 130; ++j) rows.push_back(b * 200 + j);
    }
    return rearrange(t, 2, 130, rows);
  };
  shorter.tensors.k = cut(c.tensors.k), shorter.tensors.v = cut(c.tensors.v);
  const Bounded reference = bounded_fp8(shorter);
  c.tensors.seqused_k = i32({130, 130}, {2});
  for (Tensor* t : {&c.tensors.k, &c.tensors.v}) {
    for (int64_t b = 0; b < 2; ++b) {
      std::memset(t->data<uint8_t>() + (b * 200 + 130) * 64, 0x7f, 70 * 64);
    }
  }
  run_on(stream, &c);
  EXPECT_TRUE(within(to_floats(c.tensors.out), reference.out, reference.out_bound));
}

}  // namespace halftone::test

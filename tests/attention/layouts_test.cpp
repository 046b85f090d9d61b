// Layouts: paged, packed sequences, strides. The sums of a row are a function of its key range
// alone, so every layout, batch, tile and thread count must give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "attention/attention_layouts.h"

namespace halftone {
namespace {

using namespace test;

constexpr AttentionMode kSomeModes[] = {{Format::f32, Format::f32},
                                        {Format::bf16, Format::bf16},
                                        {Format::fp8_e4m3, Format::fp8_e4m3},
                                        {Format::nvfp4, Format::bf16},
                                        {Format::mxfp8, Format::bf16}};

TEST(AttentionLayouts, PagesOfAnySizeGiveTheBitsOfContiguousKeys) {
  at_every_level([] {
    for (const AttentionMode& mode : kSomeModes) {
      for (const int64_t queries : {1, 33}) {
        Case c = make_case({2, queries, 300, 4, 2, 64}, mode, 5);
        c.problem.causal = true;
        run_case(&c);
        for (const int64_t page_size : {1, 7, 16, 64, 300, 512}) {
          SCOPED_TRACE(to_string(mode) + " pages of " + std::to_string(page_size));
          Case other = paged(c, page_size);
          run_case(&other);
          expect_same(c, other);
        }
      }
    }
  });
}

TEST(AttentionLayouts, PackedSequencesEqualEachAlone) {
  const std::vector<int64_t> query_lengths = {3, 0, 1, 20}, key_lengths = {70, 5, 0, 300};
  for (const AttentionMode& mode : kSomeModes) {
    SCOPED_TRACE(to_string(mode));
    // Every sequence is cut from one long row of queries and keys.
    const Case all = make_case({1, 24, 375, 4, 2, 64}, mode, 6);
    Case packed = all;
    packed.problem.batch = 4;
    packed.problem.query_length = 20, packed.problem.key_length = 300;
    packed.problem.variable_length = true, packed.problem.causal = true;
    std::vector<int64_t> q_rows(24), k_rows(375);
    std::iota(q_rows.begin(), q_rows.end(), 0);
    std::iota(k_rows.begin(), k_rows.end(), 0);
    packed.tensors.q = rearrange(all.tensors.q, -1, 24, q_rows);
    packed.tensors.k = rearrange(all.tensors.k, -1, 375, k_rows);
    packed.tensors.v = rearrange(all.tensors.v, -1, 375, k_rows);
    packed.tensors.cu_seqlens_q = i32({0, 3, 3, 4, 24}, {5});
    packed.tensors.cu_seqlens_k = i32({0, 70, 75, 75, 375}, {5});
    run_case(&packed);
    const std::vector<float> out = to_floats(packed.tensors.out);
    int64_t query = 0, key = 0;
    for (size_t b = 0; b < 4; ++b) {
      Case one = all;
      one.problem.query_length = query_lengths[b], one.problem.key_length = key_lengths[b];
      one.problem.causal = true;
      const auto cut = [](const Tensor& t, int64_t begin, int64_t count) {
        std::vector<int64_t> rows(static_cast<size_t>(count));
        std::iota(rows.begin(), rows.end(), begin);
        return rearrange(t, 1, count, rows);
      };
      one.tensors.q = cut(all.tensors.q, query, query_lengths[b]);
      one.tensors.k = cut(all.tensors.k, key, key_lengths[b]);
      one.tensors.v = cut(all.tensors.v, key, key_lengths[b]);
      run_case(&one);
      const std::vector<float> expected = to_floats(one.tensors.out);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(out[static_cast<size_t>(query) * 256 + i], expected[i]) << "sequence " << b;
      }
      query += query_lengths[b], key += key_lengths[b];
    }
  }
}

TEST(AttentionLayouts, StridedTensorsGiveTheBitsOfContiguousOnes) {
  at_every_level([] {
    for (const Format format : {Format::f32, Format::f16, Format::bf16}) {
      // q, k, v side by side in one tensor, as a fused projection leaves them, at odd offsets.
      const Tensor wide = random_tensor({2, 41, 8, 83}, format, 7);
      Case strided;
      AttentionProblem& p = strided.problem;
      p.batch = 2, p.query_length = p.key_length = 41, p.heads = 4, p.kv_heads = 2;
      p.head_dim = 40, p.value_dim = 40, p.mode = {format, format};
      p.q = p.k = p.v = format, p.out = Format::f32, p.causal = true, p.lse = true;
      strided.tensors.q = wide.slice(2, 0, 4).slice(3, 3, 43);
      strided.tensors.k = wide.slice(2, 4, 6).slice(3, 3, 43);
      strided.tensors.v = wide.slice(2, 6, 8).slice(3, 43, 83);
      Case plain = strided;
      plain.tensors.q = strided.tensors.q.contiguous_copy();
      plain.tensors.k = strided.tensors.k.contiguous_copy();
      plain.tensors.v = strided.tensors.v.contiguous_copy();
      run_case(&plain);
      run_case(&strided);
      expect_same(plain, strided);

      // And a strided result, whose gaps stay untouched.
      Stream stream(Device::cpu(), 2);
      const Tensor gaps = Tensor::zeros({2, 41, 5, 60}, Format::f32);
      strided.tensors.out = gaps.slice(2, 0, 4).slice(3, 7, 47);
      run(plan(p, Device::cpu()), strided.tensors, stream);
      expect_same(plain, strided);
      EXPECT_EQ(gaps.at({1, 40, 3, 6}), 0.0f);
      EXPECT_EQ(gaps.at({1, 40, 3, 47}), 0.0f);
      EXPECT_EQ(gaps.at({1, 40, 4, 20}), 0.0f);
    }
  });
}

TEST(AttentionLayouts, KeysBeyondTheSequenceAreNotRead) {
  for (const AttentionMode& mode : kSomeModes) {
    for (const int64_t queries : {1, 30}) {
      Case c = make_case({2, queries, 90, 2, 1, 32}, mode, 8);
      c.problem.variable_length = true;
      c.tensors.seqused_k = i32({77, 3}, {2});
      run_case(&c);
      Case poisoned = c;
      const auto poison = [&](const Tensor& t) {  // all bits set: NaN in every float format
        const Tensor data = rearrange(t, 2, 90, [] {
          std::vector<int64_t> rows(180);
          std::iota(rows.begin(), rows.end(), 0);
          return rows;
        }());
        const int64_t row = packed_bytes(t.format(), t.numel()) / 180;
        std::memset(data.data<char>() + 77 * row, 0xff, static_cast<size_t>(13 * row));
        std::memset(data.data<char>() + 93 * row, 0xff, static_cast<size_t>(87 * row));
        return data;
      };
      poisoned.tensors.k = poison(c.tensors.k);
      poisoned.tensors.v = poison(c.tensors.v);
      run_case(&poisoned);
      expect_same(c, poisoned);
    }
  }
}

}  // namespace
}  // namespace halftone

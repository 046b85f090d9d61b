// A row's bits depend neither on the batch, the other queries of the call, the heads beside it nor
// the threads; and windows, masks and edges of tiles and chunks stay within the bound.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "attention/attention_fixture.h"

namespace halftone {
namespace {

using namespace test;

Tensor rows_of(const Tensor& t, int dim, int64_t begin, int64_t end) {
  return t.slice(dim, begin, end);
}

// Queries [begin, end) of a causal case, as the last ones of a shorter sequence.
std::vector<float> piece_of(const Case& whole, int64_t begin, int64_t end) {
  Case part = whole;
  part.problem.query_length = end - begin, part.problem.key_length = end;
  part.tensors.q = rows_of(whole.tensors.q, 1, begin, end);
  run_case(&part);
  return to_floats(part.tensors.out);
}

TEST(AttentionInvariance, PiecesGiveTheBitsOfOneCall) {
  at_every_level([] {
    for (const AttentionMode& mode : attention_modes()) {
      SCOPED_TRACE(to_string(mode));
      Case whole = make_case({1, 290, 290, 4, 2, 64}, mode, mode.qk, mode.qk, mode.pv, 11);
      whole.problem.causal = true;
      const auto check = [&](const std::vector<float>& expected, int64_t first, int64_t begin,
                             int64_t end) {
        const std::vector<float> got = piece_of(whole, begin, end);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(got[i], expected[static_cast<size_t>(begin - first) * 256 + i])
              << "queries " << begin << " to " << end;
        }
      };
      // Above the 8 rows of decode ...
      const std::vector<float> prefill = piece_of(whole, 0, 290);
      check(prefill, 0, 1, 7), check(prefill, 0, 7, 64), check(prefill, 0, 65, 257);
      check(prefill, 0, 258, 290);
      // ... and up to them.
      for (const int64_t first : {0, 62, 254, 286}) {
        const std::vector<float> four = piece_of(whole, first, first + 4);
        check(four, first, first, first + 1), check(four, first, first + 1, first + 4);
        check(four, first, first + 2, first + 3), check(four, first, first + 2, first + 4);
      }
    }
  });
}

// Decode dequantises in registers; values and scales that are not in its lookup tables
// are handled separately.
TEST(AttentionInvariance, DecodeOfRareValues) {
  at_every_level([] {
    for (const Format cache : {Format::f16, Format::fp8_e4m3, Format::int8, Format::mxfp8,
                               Format::mxfp4, Format::nvfp4}) {
      const Format products = cache == Format::f16 ? cache : Format::bf16;
      for (const bool rare : {false, true}) {
        SCOPED_TRACE(std::string(name(cache)) + (rare ? ", rare codes" : ""));
        Case whole =
            make_case({1, 300, 300, 4, 2, 128}, {cache, products}, Format::bf16, cache, cache, 17);
        whole.problem.causal = true;
        const auto set = [](const Tensor& t, int64_t at, int value) {
          static_cast<uint8_t*>(t.data())[at] = static_cast<uint8_t>(value);
        };
        for (const bool of_v : {false, true}) {
          const Tensor& t = of_v ? whole.tensors.v : whole.tensors.k;
          if (!rare || cache == Format::f16) continue;
          if (cache == Format::int8) set(t, 130 * 256 + 77, -128);
          if (is_block(cache)) {  // rows of 2 heads
            const int64_t row = 2 * 128 / (cache == Format::nvfp4 ? 16 : 32);
            set(t.scales(), 20 * row + 1, cache == Format::nvfp4 ? 0x80 : 20);
            // Scores of 2^68 would have no useful bound.
            set(t.scales(), 160 * row + 2, cache == Format::nvfp4 ? 0 : of_v ? 195 : 140);
            set(t.scales(), 270 * row + 5, cache == Format::nvfp4 ? 1 : 62);
          }
        }
        if (rare && cache == Format::mxfp8) set(whole.tensors.v, 100 * 256 + 200, 0xff);  // NaN
        for (const int64_t row : {101, 160, 200, 255, 256, 270, 299}) {
          Case one = whole;
          one.problem.query_length = 1, one.problem.key_length = row + 1;
          one.tensors.q = rows_of(whole.tensors.q, 1, row, row + 1);
          one.tensors.k = rows_of(whole.tensors.k, 1, 0, row + 1);
          one.tensors.v = rows_of(whole.tensors.v, 1, 0, row + 1);
          const Bounded reference = bounded(one);
          run_case(&one);
          EXPECT_TRUE(within(to_floats(one.tensors.out), reference.out, reference.out_bound))
              << "query " << row;
        }
      }
    }
  });
}

TEST(AttentionInvariance, BatchThreadsAndHeadsDoNotMatter) {
  for (const AttentionMode& mode : attention_modes()) {
    SCOPED_TRACE(to_string(mode));
    for (const int64_t queries : {1, 2, 20}) {
      const int64_t dim = queries == 20 ? 32 : 64;
      Case all = make_case({3, queries, 700, 6, 2, dim}, mode, 12);
      run_case(&all, 1);
      const std::vector<float> expected = to_floats(all.tensors.out);
      for (const int threads : {2, 3, 5}) {
        Case again = all;
        run_case(&again, threads);
        expect_same(all, again);
      }
      const int64_t row = queries * 6 * dim;
      for (int64_t b = 0; b < 3; ++b) {
        Case one = all;
        one.problem.batch = 1;
        one.tensors.q = rows_of(all.tensors.q, 0, b, b + 1);
        one.tensors.k = rows_of(all.tensors.k, 0, b, b + 1);
        one.tensors.v = rows_of(all.tensors.v, 0, b, b + 1);
        run_case(&one, 2);
        const std::vector<float> got = to_floats(one.tensors.out);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(got[i], expected[static_cast<size_t>(b * row) + i]);
        }
      }
      // One query head with its KV head alone: other tiles, the same bits.
      Case head = all;
      head.problem.heads = head.problem.kv_heads = 1;
      head.tensors.q = rows_of(all.tensors.q, 2, 4, 5);
      head.tensors.k = rows_of(all.tensors.k, 2, 1, 2);
      head.tensors.v = rows_of(all.tensors.v, 2, 1, 2);
      run_case(&head);
      const std::vector<float> got = to_floats(head.tensors.out);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], expected[i / dim * 6 * dim + 4 * dim + i % dim]);
      }
    }
  }
}

TEST(AttentionShapes, HeadDimensionsAndLengthsAroundEdges) {
  at_every_level([] {
    const AttentionMode bf16{Format::bf16, Format::bf16}, f32{Format::f32, Format::f32};
    for (const AttentionMode& mode : {bf16, f32}) {
      for (const int64_t dim : {1, 2, 3, 15, 17, 33, 63, 65, 80, 129}) {
        SCOPED_TRACE("head_dim " + std::to_string(dim));
        Case c = make_case({1, 5, 23, 2, 1, dim, dim + 1}, mode, 13);
        expect_within_bound(&c);
      }
      for (const int64_t keys : {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 513}) {
        for (const int64_t queries : {1, 9}) {
          SCOPED_TRACE(std::to_string(queries) + " queries, keys " + std::to_string(keys));
          Case c = make_case({1, queries, keys, 3, 1, 16}, mode, 14);
          expect_within_bound(&c);
        }
      }
    }
  });
  for (const int64_t dim : {256, 257, 576, 1024}) {  // chunks of 256, 128, 64
    Case c =
        make_case({1, 3, 300, 2, 1, dim, dim == 576 ? 512 : dim}, {Format::bf16, Format::bf16}, 15);
    expect_within_bound(&c);
    Case tall = make_case({1, 12, 150, 2, 1, dim}, {Format::f32, Format::f32}, 16);
    expect_within_bound(&tall);
  }
}

TEST(AttentionShapes, LargeHeadsAndOtherValueDimensionsInEveryMode) {
  for (const AttentionMode& mode : attention_modes()) {
    for (const auto& [dim, value_dim] : std::vector<std::pair<int64_t, int64_t>>{
             {32, 96}, {192, 128}, {288, 32}, {576, 512}, {1024, 1024}}) {
      for (const int64_t queries : {1, 9}) {
        SCOPED_TRACE(to_string(mode) + " " + std::to_string(dim) + ", " +
                     std::to_string(value_dim));
        Case c = make_case({1, queries, 70, 2, 1, dim, value_dim}, mode, 23);
        const Bounded reference = bounded(c);
        at_every_level([&] { expect_within(&c, reference); });
      }
    }
  }
}

TEST(AttentionShapes, WindowsAndMasks) {
  at_every_level([] {
    for (const int64_t queries : {1, 30, 70}) {
      for (const auto& [left, right] : std::vector<std::pair<int64_t, int64_t>>{
               {-1, -1}, {0, 0}, {5, -1}, {-1, 3}, {20, 10}, {300, 0}, {1000, 1000}}) {
        for (const bool causal : {false, true}) {
          SCOPED_TRACE(std::to_string(queries) + " queries, window " + std::to_string(left) + ", " +
                       std::to_string(right) + (causal ? ", causal" : ""));
          Case c = make_case({1, queries, 290, 2, 1, 32}, {Format::bf16, Format::bf16}, 17);
          c.problem.window_left = left, c.problem.window_right = right, c.problem.causal = causal;
          expect_within_bound(&c);
        }
      }
    }
  });
}

// More queries than keys under a causal mask: all keys are masked for the first rows.
TEST(AttentionShapes, RowsWithoutKeysAreZero) {
  at_every_level([] {
    for (const int64_t keys : {0, 3}) {
      Case c = make_case({2, 10, keys, 2, 1, 32}, {Format::bf16, Format::bf16}, 18);
      c.problem.causal = true;
      run_case(&c);
      const std::vector<float> out = to_floats(c.tensors.out), lse = to_floats(c.tensors.lse);
      for (int64_t i = 0; i < 10 - keys; ++i) {
        for (int64_t x = 0; x < 64; ++x) EXPECT_EQ(out[static_cast<size_t>(i * 64 + x)], 0.0f);
        EXPECT_EQ(lse[static_cast<size_t>(i)], -INFINITY);
      }
      if (keys > 0) {
        EXPECT_TRUE(std::isfinite(lse[9]));
      }
    }
    Case empty = make_case({0, 4, 5, 2, 1, 32}, {Format::bf16, Format::bf16}, 19);
    run_case(&empty);
    EXPECT_EQ(empty.tensors.out.numel(), 0);
  });
}

TEST(AttentionData, ExtremeDataStaysWithinItsBound) {
  at_every_level([] {
    for (const AttentionMode& mode : attention_modes()) {
      SCOPED_TRACE(to_string(mode));
      for (const Data data : {Data::all_equal, Data::tiny}) {
        if (mode.qk == Format::f16 && data == Data::tiny) continue;  // 0 in f16
        Case c = make_case({1, 4, 100, 2, 1, 32}, mode, 20, data);
        expect_within_bound(&c);
      }
    }
    // Scores in the thousands: one key takes all the weight.
    Case sharp = make_case({1, 4, 100, 2, 1, 32}, {Format::f32, Format::f32}, 21);
    sharp.problem.softmax_scale = 300.0f;
    expect_within_bound(&sharp);
  });
}

TEST(AttentionData, NanReachesItsOwnRowsOnly) {
  at_every_level([] {
    Case c = make_case({1, 6, 40, 2, 1, 32}, {Format::bf16, Format::bf16}, 22);
    Case clean = c;
    run_case(&clean);
    c.tensors.q = c.tensors.q.contiguous_copy();
    c.tensors.q.data<uint16_t>()[2 * 64 + 5] = 0x7fc0;  // query 2, head 0
    run_case(&c);
    const std::vector<float> got = to_floats(c.tensors.out), ok = to_floats(clean.tensors.out);
    for (size_t i = 0; i < got.size(); ++i) {
      if (i / 32 == 4) {
        EXPECT_TRUE(std::isnan(got[i]));
      } else {
        EXPECT_EQ(got[i], ok[i]);
      }
    }
  });
}

}  // namespace
}  // namespace halftone

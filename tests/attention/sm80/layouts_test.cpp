// Attention on sm_80 and later on a simulated GPU: layouts, lengths on the device, split-KV, and
// values that are masked for all rows.
#include "attention/sm80/cases.h"

namespace halftone::test {
namespace {

Stream chip() { return Stream(Device::simulator(Arch::sm_80)); }

constexpr AttentionMode kSomeModes[] = {{Format::bf16, Format::bf16},
                                        {Format::f32, Format::f32},
                                        {Format::fp8_e4m3, Format::fp8_e4m3},
                                        {Format::nvfp4, Format::nvfp4}};

// One query over many keys: split-KV, combined.
TEST(AttentionSm80Layouts, SplitKvWithinTheBound) {
  Stream stream = chip();
  for (const AttentionMode& mode : attention_modes()) {
    Case c = make_case({1, 1, 1100, 2, 1, 32}, mode, 5);
    c.problem.window_left = 900;
    set_sinks(&c, Tensor::from({1, -2}, {2}));
    EXPECT_NE(describe(plan(c.problem, stream.device())).find("3 splits of 512 keys"),
              std::string::npos);
    expect_on(stream, c);
  }
  Case two = make_case({2, 3, 700, 4, 2, 64, 41}, {}, 6);
  two.problem.causal = true, two.problem.out = Format::bf16;
  expect_on(stream, two);
}

TEST(AttentionSm80Layouts, PagesGiveTheBitsOfContiguousKeys) {
  Stream stream = chip();
  for (const AttentionMode& mode : kSomeModes) {
    for (const int64_t queries : {3, 33}) {
      Case c = make_case({2, queries, queries == 3 ? 700 : 130, 4, 2, 64}, mode, 5);
      c.problem.causal = true;
      run_on(stream, &c);
      for (const int64_t page_size : {1, 7, 64, 1024}) {
        SCOPED_TRACE(to_string(mode) + " pages of " + std::to_string(page_size));
        Case other = paged(c, page_size);
        run_on(stream, &other);
        expect_same(c, other);
      }
    }
  }
}

TEST(AttentionSm80Layouts, PackedSequencesEqualEachAlone) {
  Stream stream = chip();
  const std::vector<int64_t> query_ends = {0, 3, 3, 4, 24}, key_ends = {0, 70, 75, 75, 375};
  for (const AttentionMode& mode : kSomeModes) {
    SCOPED_TRACE(to_string(mode));
    const Case all = make_case({1, 24, 375, 4, 2, 64}, mode, 6);
    const auto cut = [](const Tensor& t, int64_t first, int64_t begin, int64_t end) {
      std::vector<int64_t> rows(static_cast<size_t>(end - begin));
      std::iota(rows.begin(), rows.end(), begin);
      return rearrange(t, first, end - begin, rows);
    };
    Case packed = all;
    AttentionProblem& p = packed.problem;
    p.batch = 4, p.query_length = 20, p.key_length = 300;
    p.variable_length = p.causal = true;
    packed.tensors.q = cut(all.tensors.q, -1, 0, 24);
    packed.tensors.k = cut(all.tensors.k, -1, 0, 375);
    packed.tensors.v = cut(all.tensors.v, -1, 0, 375);
    packed.tensors.cu_seqlens_q = i32({0, 3, 3, 4, 24}, {5});
    packed.tensors.cu_seqlens_k = i32({0, 70, 75, 75, 375}, {5});
    run_on(stream, &packed);
    const std::vector<float> out = to_floats(packed.tensors.out);
    for (size_t b = 0; b < 4; ++b) {
      const int64_t query = query_ends[b], key = key_ends[b];
      Case one = all;
      one.problem.query_length = query_ends[b + 1] - query;
      one.problem.key_length = key_ends[b + 1] - key;
      one.problem.causal = true;
      one.tensors.q = cut(all.tensors.q, 1, query, query_ends[b + 1]);
      one.tensors.k = cut(all.tensors.k, 1, key, key_ends[b + 1]);
      one.tensors.v = cut(all.tensors.v, 1, key, key_ends[b + 1]);
      const OtherKernels decode;  // a sequence of one query token has it where it is alone
      run_on(stream, &one);
      const std::vector<float> expected = to_floats(one.tensors.out);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(out[static_cast<size_t>(query) * 256 + i], expected[i]) << "sequence " << b;
      }
    }
  }
}

// Rows of any alignment, as a fused projection leaves them, and a strided result whose gaps stay.
TEST(AttentionSm80Layouts, StridesGiveTheBitsOfContiguousTensors) {
  Stream stream = chip();
  for (const Format format : {Format::f32, Format::f16, Format::bf16}) {
    for (const int64_t begin : {0, 2, 3, 4}) {
      SCOPED_TRACE(std::string(name(format)) + " from " + std::to_string(begin));
      const int64_t width = begin == 3 ? 83 : 88;
      const Tensor wide = random_tensor({2, 41, 8, width}, format, 7);
      Case strided;
      AttentionProblem& p = strided.problem;
      p.batch = 2, p.query_length = p.key_length = 41, p.heads = 4, p.kv_heads = 2;
      p.head_dim = 40, p.value_dim = 39, p.mode = {format, format};
      p.q = p.k = p.v = p.out = format, p.causal = p.lse = true;
      Case plain = strided;
      plain.tensors.q = wide.slice(2, 0, 4).slice(3, begin, begin + 40).contiguous_copy();
      plain.tensors.k = wide.slice(2, 4, 6).slice(3, begin, begin + 40).contiguous_copy();
      plain.tensors.v = wide.slice(2, 6, 8).slice(3, begin + 40, begin + 79).contiguous_copy();
      run_on(stream, &plain);

      const Device& device = stream.device();
      const Tensor there = wide.to(device);
      AttentionTensors t;
      t.q = there.slice(2, 0, 4).slice(3, begin, begin + 40);
      t.k = there.slice(2, 4, 6).slice(3, begin, begin + 40);
      t.v = there.slice(2, 6, 8).slice(3, begin + 40, begin + 79);
      const Tensor gaps = Tensor::zeros({2, 41, 5, 60}, format).to(device);
      t.out = gaps.slice(2, 0, 4).slice(3, 7, 46);
      t.lse = Tensor::zeros({2, 4, 41}, Format::f32).to(device);
      run(planned(p, device), t, stream);
      const Tensor back = gaps.to(Device::cpu());
      strided.tensors.out = back.slice(2, 0, 4).slice(3, 7, 46);
      expect_same(plain, strided);
      EXPECT_EQ(back.at({1, 40, 3, 6}), 0.0f);
      EXPECT_EQ(back.at({1, 40, 3, 46}), 0.0f);
      EXPECT_EQ(back.at({1, 40, 4, 20}), 0.0f);
    }
  }
}

// All bits set from `key` on: NaN in every float format.
Tensor poisoned(const Tensor& t, int64_t sequence, int64_t key) {
  const Tensor data = t.contiguous_copy();
  const int64_t row = packed_bytes(t.format(), t.numel()) / (t.size(0) * t.size(1));
  std::memset(data.data<char>() + (sequence * t.size(1) + key) * row, 0xff,
              static_cast<size_t>((t.size(1) - key) * row));
  return t.has_scales() ? data.quantized(t.scaling(), t.scales(), t.tensor_scale()) : data;
}

TEST(AttentionSm80Layouts, KeysBeyondTheSequenceAreNotRead) {
  Stream stream = chip();
  for (const AttentionMode& mode : attention_modes()) {
    for (const int64_t queries : {1, 30}) {
      Case c = make_case({2, queries, 90, 2, 1, 32}, mode, 8);
      c.problem.variable_length = true;
      c.tensors.seqused_k = i32({77, 3}, {2});
      run_on(stream, &c);
      Case other = c;
      for (Tensor* t : {&other.tensors.k, &other.tensors.v}) {
        *t = poisoned(poisoned(*t, 0, 77), 1, 3);
      }
      run_on(stream, &other);
      expect_same(c, other);
    }
  }
}

// Lengths and pages that lead nowhere are cut to what there is; nothing outside is read.
TEST(AttentionSm80Layouts, LengthsOutOfRangeStayInside) {
  Stream stream = chip();
  Case c = paged(make_case({2, 1, 90, 2, 1, 32}, {}, 8), 16);
  c.problem.variable_length = true;
  c.tensors.seqused_k = i32({1 << 30, -5}, {2});
  c.tensors.page_table.data<int32_t>()[1] = -1;
  c.tensors.page_table.data<int32_t>()[2] = 1 << 20;
  run_on(stream, &c);
  for (int64_t d = 0; d < 32; ++d) EXPECT_EQ(c.tensors.out.at({1, 0, 0, d}), 0.0f);
}

// NaN in K and V of some keys reaches the rows to which they are visible, and no others.
TEST(AttentionSm80Layouts, MaskedKeysNeedNotBeFinite) {
  Stream stream = chip();
  for (const AttentionMode& mode :
       {AttentionMode{}, AttentionMode{Format::f16, Format::f16},
        AttentionMode{Format::f32, Format::f32}, AttentionMode{Format::fp8_e4m3, Format::fp8_e4m3},
        AttentionMode{Format::nvfp4, Format::nvfp4}}) {
    for (const bool masked : {false, true}) {
      SCOPED_TRACE(to_string(mode) + (masked ? ", masked" : ", causal"));
      Case c = make_case({1, 100, 100, 2, 1, 64}, mode, 59);
      c.problem.causal = true;
      if (masked) set_mask(&c, boolean_mask({1, 1, 100, 100}, 60));
      run_on(stream, &c);
      Case other = c;
      for (Tensor* t : {&other.tensors.k, &other.tensors.v}) {
        if (!t->has_scales()) {
          *t = poisoned(*t, 0, 70);
          continue;
        }
        const Tensor scales = t->scales().contiguous_copy();
        const int64_t row = scales.bytes() / 100;
        std::memset(scales.data<char>() + 70 * row, 0xff, static_cast<size_t>(30 * row));
        *t = t->quantized(t->scaling(), scales, t->tensor_scale());
      }
      run_on(stream, &other);
      const std::vector<float> clean = to_floats(c.tensors.out), got = to_floats(other.tensors.out);
      for (size_t i = 0; i < got.size(); ++i) {
        const auto query = static_cast<int64_t>(i / 128);
        bool sees = false;
        for (int64_t key = 70; key <= query; ++key) {
          sees = sees || !masked || mask_term(c.tensors.mask, 0, 0, query, key) == 0;
        }
        if (sees) {
          ASSERT_TRUE(std::isnan(got[i])) << query;
        } else {
          ASSERT_EQ(got[i], clean[i]) << query;
        }
      }
    }
  }
}

// Infinities in V arrive as such.
TEST(AttentionSm80Layouts, InfinitiesReachRowsWhereTheyAreVisible) {
  Stream stream = chip();
  for (const Format format : {Format::bf16, Format::f16, Format::f32}) {
    Case c = make_case({1, 40, 40, 1, 1, 64}, {format, format}, 61);
    c.problem.causal = true;
    Tensor v = to_floats(c.tensors.v).empty() ? Tensor() : convert(c.tensors.v, Format::f32);
    v = v.contiguous_copy();
    const auto set = [&](int64_t key, int64_t d, float x) { v.data<float>()[key * 64 + d] = x; };
    set(10, 3, INFINITY), set(20, 4, -INFINITY), set(15, 5, INFINITY), set(16, 5, -INFINITY);
    c.tensors.v = convert(v, format);
    run_on(stream, &c);
    const Tensor& out = c.tensors.out;
    for (int64_t i = 0; i < 40; ++i) {
      EXPECT_EQ(out.at({0, i, 0, 3}) == INFINITY, i >= 10) << i;
      EXPECT_EQ(out.at({0, i, 0, 4}) == -INFINITY, i >= 20) << i;
      EXPECT_EQ(out.at({0, i, 0, 5}) == INFINITY, i == 15) << i;
      EXPECT_EQ(std::isnan(out.at({0, i, 0, 5})), i >= 16) << i;
      EXPECT_TRUE(std::isfinite(out.at({0, i, 0, 6}))) << i;
    }
  }
}

TEST(AttentionSm80Layouts, RowsWithAllKeysMasked) {
  Stream stream = chip();
  for (const bool sinks : {false, true}) {
    for (const int64_t keys : {0, 60, 700}) {
      Case c = make_case({1, 2, keys, 2, 1, 32}, {}, 52);
      Tensor mask = boolean_mask({1, 1, 2, keys}, 53);
      if (keys > 0) std::memset(mask.data<uint8_t>() + keys, 0, static_cast<size_t>(keys));
      set_mask(&c, mask);
      if (sinks) set_sinks(&c, Tensor::from({0.5f, -3}, {2}));
      expect_on(stream, c);
      run_on(stream, &c);
      for (int64_t d = 0; d < 32; ++d) EXPECT_EQ(c.tensors.out.at({0, 1, 1, d}), 0.0f);
      EXPECT_EQ(c.tensors.lse.at({0, 1, 1}), sinks ? -3.0f : -INFINITY);
    }
  }
}

}  // namespace
}  // namespace halftone::test

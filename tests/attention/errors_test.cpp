// Rules: can_run gives the reason, run names the tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "attention/attention_fixture.h"
#include "ops/attention/kernels.h"

namespace halftone {
namespace {

using namespace test;

AttentionProblem good() {
  return make_case({1, 4, 32, 4, 2, 32}, {Format::bf16, Format::bf16}).problem;
}

TEST(AttentionRules, CanRunNamesTheArgumentItsValueAndTheRule) {
  struct Wrong {
    std::function<void(AttentionProblem&)> change;
    std::vector<std::string> words;
  };
  const Wrong table[] = {
      {[](auto& p) { p.heads = 5; }, {"heads is 5", "kv_heads 2"}},
      {[](auto& p) { p.heads = 0; }, {"heads is 0"}},
      {[](auto& p) { p.kv_heads = 0; }, {"kv_heads is 0"}},
      {[](auto& p) { p.head_dim = 0; }, {"head_dim is 0", "1024"}},
      {[](auto& p) { p.head_dim = 1025; }, {"head_dim is 1025", "1024"}},
      {[](auto& p) { p.value_dim = 2000; }, {"value_dim is 2000"}},
      {[](auto& p) { p.batch = -1; }, {"batch is -1"}},
      {[](auto& p) { p.query_length = -2; }, {"query_length is -2"}},
      {[](auto& p) { p.key_length = -2; }, {"key_length is -2"}},
      {[](auto& p) { p.window_left = -2; }, {"window_left is -2"}},
      {[](auto& p) { p.window_right = -3; }, {"window_right is -3"}},
      {[](auto& p) { p.page_size = 0; }, {"page_size is 0"}},
      {[](auto& p) { p.attention_chunk_size = -8; }, {"attention_chunk_size is -8"}},
      {[](auto& p) { p.softcap = -2; }, {"softcap is -2"}},
      {[](auto& p) { p.softcap = NAN; }, {"softcap is nan"}},
      {[](auto& p) { p.softcap = INFINITY; }, {"softcap is inf"}},
      {[](auto& p) { p.mask = Format::i32; }, {"mask is i32", "u8"}},
      {[](auto& p) { p.out = Format::int8; }, {"out is int8"}},
      {[](auto& p) { p.q = Format::int8; }, {"q is int8", "bf16+bf16"}},
      {[](auto& p) { p.k = Format::f32; }, {"k is f32", "bf16"}},
      {[](auto& p) { p.v = Format::f16; }, {"v is f16", "bf16"}},
      {[](auto& p) {
         p.mode = {Format::bf16, Format::f32};
       },
       {"mode is bf16+f32"}},
      {[](auto& p) { p.mode.pv = Format::fp8_e4m3; }, {"mode is bf16+fp8"}},
      {[](auto& p) { p.mode.qk = p.k = Format::nvfp4, p.head_dim = 40; }, {"head_dim is 40", "16"}},
      {[](auto& p) { p.mode.qk = p.k = Format::mxfp8, p.head_dim = 48; }, {"head_dim is 48", "32"}},
      {[](auto& p) { p.v = Format::mxfp8, p.value_dim = 48; }, {"value_dim is 48", "32"}},
  };
  EXPECT_TRUE(can_run(good(), Device::cpu()));
  for (const Wrong& wrong : table) {
    AttentionProblem p = good();
    wrong.change(p);
    const Support support = can_run(p, Device::cpu());
    EXPECT_FALSE(support) << wrong.words[0];
    for (const std::string& word : wrong.words) {
      EXPECT_NE(support.reason.find(word), std::string::npos) << support.reason;
    }
    expect_error([&] { plan(p, Device::cpu()); }, wrong.words);
  }
}

TEST(AttentionRules, RunNamesTheTensor) {
  struct Wrong {
    std::function<void(Case&)> change;
    std::vector<std::string> words;
  };
  const auto lengths = [](std::vector<int32_t> values) {
    return Tensor::from<int32_t>(values, {static_cast<int64_t>(values.size())}, Format::i32);
  };
  const Wrong table[] = {
      {[](Case& c) { c.tensors.q = Tensor(); }, {"q is missing"}},
      {[](Case& c) {
         c.tensors.k = random_tensor({1, 32, 2, 16}, Format::bf16, 1);
       },
       {"k has shape [1, 32, 2, 16]", "32"}},
      {[](Case& c) {
         c.tensors.v = random_tensor({1, 31, 2, 32}, Format::bf16, 1);
       },
       {"v has shape"}},
      {[](Case& c) {
         c.tensors.v = random_tensor({1, 32, 2, 32}, Format::f32, 1);
       },
       {"v is f32"}},
      {[](Case& c) {
         c.tensors.k = random_tensor({1, 32, 32, 2}, Format::bf16, 1).transpose(2, 3);
       },
       {"k has stride", "last dimension"}},
      {[](Case& c) { c.problem.key_length = 33; }, {"33", "32"}},
      {[&](Case& c) { c.tensors.seqused_k = lengths({40}); }, {"40 keys"}},
      {[&](Case& c) { c.tensors.seqused_k = lengths({-1}); }, {"-1 keys"}},
      {[&](Case& c) {
         c.tensors.seqused_k = lengths({1, 2});
       },
       {"seqused_k has shape [2]"}},
      {[](Case& c) { c.problem.k = c.problem.mode.qk = Format::nvfp4; }, {"k is bf16", "nvfp4"}},
      {[](Case& c) { c.problem.lse = true; }, {"lse is missing"}},
      {[](Case& c) { c.problem.mask = Format::u8; }, {"mask is missing"}},
      {[](Case& c) {
         c.tensors.mask = Tensor::zeros({1, 1, 4, 32}, Format::u8);
       },
       {"mask is given", "set mask"}},
      {[](Case& c) {
         c.problem.mask = Format::f32;
         c.tensors.mask = Tensor::zeros({1, 1, 4, 32}, Format::u8);
       },
       {"mask is u8", "f32"}},
      {[](Case& c) {
         c.problem.mask = Format::u8;
         c.tensors.mask = Tensor::zeros({1, 2, 4, 32}, Format::u8);
       },
       {"mask has shape [1, 2, 4, 32]", "[1, 4, 4, 32]"}},
      {[](Case& c) { c.problem.sinks = true; }, {"sinks is missing"}},
      {[](Case& c) { c.tensors.sinks = Tensor::zeros({4}, Format::f32); },
       {"sinks are given", "set sinks"}},
      {[](Case& c) {
         c.problem.sinks = true;
         c.tensors.sinks = Tensor::zeros({2}, Format::f32);
       },
       {"sinks has shape [2]"}},
  };
  for (const Wrong& wrong : table) {
    Case c = make_case({1, 4, 32, 4, 2, 32}, {Format::bf16, Format::bf16});
    c.problem.lse = false;
    c.tensors.out = Tensor::empty({1, 4, 4, 32}, Format::f32);
    wrong.change(c);
    expect_error(
        [&] {
          Stream stream(Device::cpu(), 1);
          run(plan(c.problem, Device::cpu()), c.tensors, stream);
        },
        wrong.words);
  }
}

TEST(AttentionRules, PageTablesAndCumulativeLengthsAreChecked) {
  Stream stream(Device::cpu(), 1);
  Case c = make_case({2, 4, 32, 4, 2, 32}, {Format::bf16, Format::bf16});
  c.problem.lse = false;
  c.problem.page_size = 16;
  c.tensors.k = c.tensors.v = random_tensor({4, 16, 2, 32}, Format::bf16, 1);
  c.tensors.out = Tensor::empty({2, 4, 4, 32}, Format::f32);
  const auto with_table = [&](std::vector<int32_t> pages) {
    c.tensors.page_table = Tensor::from<int32_t>(pages, {2, 2}, Format::i32);
    run(plan(c.problem, Device::cpu()), c.tensors, stream);
  };
  with_table({3, 1, 0, 2});
  expect_error([&] { with_table({3, 1, 0, 4}); }, {"page_table[1, 1] is 4", "4 pages"});
  expect_error([&] { with_table({3, -1, 0, 2}); }, {"page_table[0, 1] is -1"});

  Case packed = make_case({1, 8, 32, 4, 2, 32}, {Format::bf16, Format::bf16});
  packed.problem.lse = false, packed.problem.batch = 2;
  packed.tensors.q = packed.tensors.q.reshape({8, 4, 32});
  packed.tensors.k = packed.tensors.k.reshape({32, 2, 32});
  packed.tensors.v = packed.tensors.v.reshape({32, 2, 32});
  packed.tensors.out = Tensor::empty({8, 4, 32}, Format::f32);
  const auto with_lengths = [&](std::vector<int32_t> q, std::vector<int32_t> k) {
    packed.tensors.cu_seqlens_q = Tensor::from<int32_t>(q, {3}, Format::i32);
    packed.tensors.cu_seqlens_k = Tensor::from<int32_t>(k, {3}, Format::i32);
    run(plan(packed.problem, Device::cpu()), packed.tensors, stream);
  };
  with_lengths({0, 3, 8}, {0, 20, 32});
  expect_error([&] { with_lengths({1, 3, 8}, {0, 20, 32}); }, {"cu_seqlens_q[0] is 1"});
  expect_error([&] { with_lengths({0, 5, 3}, {0, 20, 32}); }, {"cu_seqlens_q[2] is 3"});
  expect_error([&] { with_lengths({0, 3, 8}, {0, 20, 40}); }, {"cu_seqlens_k"});
  expect_error([&] { with_lengths({0, 3, 9}, {0, 20, 32}); }, {"cu_seqlens_q[2] is 9", "8 rows"});
}

TEST(AttentionModeNames, ParseAndSuggest) {
  for (const AttentionMode& mode : attention_modes()) {
    EXPECT_EQ(parse_attention_mode(to_string(mode)), mode);
  }
  EXPECT_EQ(parse_attention_mode("fp8_e4m3+bfloat16"),
            (AttentionMode{Format::fp8_e4m3, Format::bf16}));
  expect_error([] { parse_attention_mode("nvfp4+fp16"); }, {"nvfp4+fp16", "did you mean nvfp4+"});
  expect_error([] { parse_attention_mode("bf61+bf16"); }, {"did you mean bf16+bf16"});
  expect_error([] { parse_attention_mode(""); }, {"The modes are f32+f32"});
}

TEST(AttentionTable, EveryLevelHasItsKernelAndThePlanSaysWhich) {
  EXPECT_FALSE(attention_kernels().empty());
  EXPECT_EQ(attention_kernels().back().level, CpuLevel::baseline);
  at_every_level([] {
    const AttentionPlan p = plan(good(), Device::cpu());
    EXPECT_NE(describe(p).find(std::string("attention_") + name(cpu_level())), std::string::npos);
    EXPECT_NE(describe(p).find("bf16+bf16"), std::string::npos);
    EXPECT_GT(p.workspace_bytes, 0);
  });
  expect_error([] { describe(AttentionPlan{}); }, {"empty"});
}

TEST(AttentionOneLiner, ModesFromTensorsAndOnRequest) {
  const Tensor q = random_tensor({2, 7, 4, 64}, Format::bf16, 1);
  const Tensor k = random_tensor({2, 9, 2, 64}, Format::bf16, 2);
  const Tensor v = random_tensor({2, 9, 2, 64}, Format::bf16, 3);
  AttentionOptions options;
  options.causal = true;
  const Tensor plain = attention(q, k, v, options);
  EXPECT_EQ(plain.format(), Format::bf16);
  EXPECT_EQ(plain.shape(), (Shape{2, 7, 4, 64}));
  for (const AttentionMode& mode : attention_modes()) {
    options.mode = mode;
    const Tensor out = attention(q, k, v, options);
    const Difference d = compare(to_floats(out), to_floats(plain));
    EXPECT_GT(d.cosine, 0.97) << to_string(mode);  // format error of 4 bits on normal data
  }
  expect_error([&] { attention(q.reshape({14, 4, 64}), k, v); }, {"[14, 4, 64]"});
}

}  // namespace
}  // namespace halftone

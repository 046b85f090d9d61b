// What a programmer may get wrong in C++: each call throws an Error with the right code, whose
// sentence names the argument, its value and the rule.
#include <gtest/gtest.h>

#include <functional>

#include "halftone/engine.h"
#include "halftone/halftone.h"

namespace halftone {
namespace {

struct WrongCall {
  const char* name;
  std::function<void()> call;
  ErrorCode code;
  std::vector<std::string> words;
};

Tensor f32(const Shape& shape) { return Tensor::zeros(shape, Format::f32); }
Tensor bf16(const Shape& shape) { return Tensor::zeros(shape, Format::bf16); }

SamplingOptions sampling(float temperature, int top_k, float top_p) {
  SamplingOptions o;
  o.temperature = temperature, o.top_k = top_k, o.top_p = top_p;
  return o;
}

std::vector<WrongCall> wrong_calls() {
  constexpr auto kArgument = ErrorCode::invalid_argument;
  constexpr auto kUnsupported = ErrorCode::unsupported;
  return {
      {"format name", [] { parse_format("bf17"); }, kArgument, {"bf17", "bf16"}},
      {"quantization name", [] { parse_quantization("nvfp44"); }, kArgument, {"nvfp44", "nvfp4"}},
      {"mode name", [] { parse_attention_mode("bf16"); }, kArgument, {"bf16"}},
      {"device name", [] { Device::parse("gpu"); }, kArgument, {"gpu", "cuda:N"}},
      {"absent device", [] { Device::parse("cuda:1"); }, kUnsupported, {"cuda:1", "use cpu"}},
      {"threads", [] { Stream(Device::cpu(), -1); }, kArgument, {"threads is -1"}},
      {"negative extent",
       [] {
         f32({-2, 3});
       },
       kArgument,
       {"-2"}},
      {"reshape",
       [] {
         f32({2, 3}).reshape({4});
       },
       kArgument,
       {"[2, 3]", "[4]"}},
      {"slice",
       [] {
         f32({2, 3}).slice(1, 1, 9);
       },
       kArgument,
       {"[1, 9)", "3"}},
      {"matmul, inner extents",
       [] {
         matmul(f32({2, 8}), f32({4, 7}));
       },
       kArgument,
       {"8", "7"}},
      {"matmul, integers",
       [] {
         matmul(Tensor::zeros({2, 8}, Format::i32), f32({4, 8}));
       },
       kUnsupported,
       {"i32"}},
      {"attention, head_dim",
       [] {
         attention(bf16({1, 2, 2, 64}), bf16({1, 2, 2, 32}), bf16({1, 2, 2, 32}));
       },
       kArgument,
       {"64", "32"}},
      {"attention, heads",
       [] {
         attention(bf16({1, 2, 3, 64}), bf16({1, 2, 2, 64}), bf16({1, 2, 2, 64}));
       },
       kUnsupported,
       {"3", "2"}},
      {"attention, rank",
       [] {
         attention(bf16({2, 64}), bf16({2, 64}), bf16({2, 64}));
       },
       kArgument,
       {"[2, 64]"}},
      {"norm, weight",
       [] {
         rms_norm(f32({2, 8}), f32({9}), 1e-5f);
       },
       kArgument,
       {"[9]", "[8]"}},
      {"norm, eps",
       [] {
         rms_norm(f32({2, 8}), f32({8}), -1);
       },
       kUnsupported,
       {"eps is -1"}},
      {"swiglu, shapes",
       [] {
         swiglu(f32({2, 8}), f32({3, 8}));
       },
       kArgument,
       {"[2, 8]", "[3, 8]"}},
      {"softmax, format", [] { softmax(Tensor::zeros({2}, Format::u8)); }, kUnsupported, {"u8"}},
      {"rope, odd rotary_dim",
       [] {
         RopeOptions o;
         o.rotary_dim = 3;
         Tensor x = f32({1, 1, 8});
         rope(x, Tensor::zeros({1}, Format::i32), o);
       },
       kUnsupported,
       {"rotary_dim is 3", "even"}},
      {"embedding, index",
       [] {
         embedding(Tensor::from<int32_t>(std::vector<int32_t>{5}, {1}, Format::i32), f32({4, 8}));
       },
       kArgument,
       {"ids[0] is 5", "4"}},
      {"routing, top_k",
       [] {
         route(f32({2, 4}), {5, true});
       },
       kArgument,
       {"5", "4"}},
      {"sampling, temperature",
       [] { validate(sampling(-1, 0, 1)); },
       kArgument,
       {"temperature is -1"}},
      {"sampling, top_k", [] { validate(sampling(1, -2, 1)); }, kArgument, {"top_k is -2"}},
      {"sampling, top_p", [] { validate(sampling(1, 0, 0)); }, kArgument, {"top_p is 0"}},
      {"quantize, block rows",
       [] {
         quantize(f32({2, 31}), QuantizeOptions(Format::nvfp4));
       },
       kArgument,
       {"31", "16"}},
      {"quantize, format", [] { QuantizeOptions o(Format::i32); }, kArgument, {"i32"}},
      {"dequantize to int8",
       [] {
         dequantize(f32({2, 2}), Format::int8);
       },
       kArgument,
       {"int8"}},
      {"convert to fp8", [] { convert(f32({2}), Format::fp8_e4m3); }, kArgument, {"fp8_e4m3"}},
      {"scales of a plain tensor", [] { f32({2}).scales(); }, kArgument, {"f32", "without scales"}},
      {"KV cache, format",
       [] {
         KvCacheOptions o;
         o.format = Format::int4, o.layers = o.kv_heads = 1, o.head_dim = 64, o.max_length = 8;
         KvCache cache(o);
       },
       kArgument,
       {"int4"}},
      {"model path", [] { Model::load("no/such/model"); }, ErrorCode::io, {"no/such/model"}},
      {"tokenizer path",
       [] { Tokenizer::load("no/such/tokenizer"); },
       ErrorCode::io,
       {"no/such/tokenizer"}},
  };
}

TEST(WrongArguments, ThrowOneSentenceThatNamesTheMistake) {
  for (const WrongCall& wrong : wrong_calls()) {
    SCOPED_TRACE(wrong.name);
    try {
      wrong.call();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      const std::string sentence = error.what();
      EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(wrong.code)) << sentence;
      EXPECT_EQ(sentence.find('\n'), std::string::npos);
      for (const std::string& word : wrong.words) {
        EXPECT_NE(sentence.find(word), std::string::npos)
            << "\"" << word << "\" not in: " << sentence;
      }
    }
  }
}

}  // namespace
}  // namespace halftone

// What a programmer may get wrong in C++: each call throws an Error with the right code, whose
// sentence names the argument, its value and the rule.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <functional>

#include "halftone/chat.h"
#include "halftone/engine.h"
#include "halftone/halftone.h"
#include "support/source_path.h"

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
      {"absent device", [] { Device::parse("cuda:99"); }, kUnsupported, {"cuda:99", "use cpu"}},
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

const std::string kBard = test::source_path("examples/models/bard");
Session& bard() {
  static Session session(Model::load(kBard));
  return session;
}
Tensor i32(const std::vector<int32_t>& values) {
  return Tensor::from<int32_t>(values, {static_cast<int64_t>(values.size())}, Format::i32);
}
KvCacheOptions cache(int64_t layers, int64_t heads, int64_t head_dim, int64_t length) {
  KvCacheOptions o;
  o.layers = layers, o.kv_heads = heads, o.head_dim = head_dim, o.max_length = length;
  return o;
}
void rotate(int64_t heads, int64_t head_dim, int64_t rotary_dim, double theta, size_t positions) {
  RopeOptions o;
  o.rotary_dim = rotary_dim;
  o.theta = static_cast<decltype(o.theta)>(theta);
  Tensor x = f32({1, heads, head_dim});
  rope(x, i32(std::vector<int32_t>(positions, 0)), o);
}
void say(const GenerateOptions& o, const char* prompt = "a") { generate(bard(), prompt, o); }

std::vector<WrongCall> more_wrong_calls() {
  constexpr auto kArgument = ErrorCode::invalid_argument;
  constexpr auto kUnsupported = ErrorCode::unsupported;
  constexpr auto kMalformed = ErrorCode::malformed_file;
  constexpr auto kMemory = ErrorCode::out_of_memory;
  const auto empty = [](const Shape& shape) { Tensor::empty(shape, Format::f32); };
  return {
      {"no format", [] { parse_format(""); }, kArgument, {"\"\""}},
      {"no quantization", [] { parse_quantization(""); }, kArgument, {"\"\""}},
      {"half a mode", [] { parse_attention_mode("bf16+"); }, kArgument, {"bf16+"}},
      {"mode of two unknown", [] { parse_attention_mode("a+b"); }, kArgument, {"a"}},
      {"no device", [] { Device::parse(""); }, kArgument, {"cpu"}},
      {"simulator of no chip", [] { Device::parse("sim:sm_12"); }, kArgument, {"sm_12"}},
      {"huge tensor", [=] { empty({int64_t{1} << 45}); }, kMemory, {"140737488355", "machine has"}},
      {"huge extents",
       [=] {
         empty({int64_t{1} << 40, int64_t{1} << 40});
       },
       kArgument,
       {"2^63"}},
      {"larger than addresses", [=] { empty({int64_t{1} << 58}); }, kArgument, {"too large"}},
      {"slice of no dimension",
       [] {
         f32({2, 3}).slice(2, 0, 1);
       },
       kArgument,
       {"2"}},
      {"slice backwards",
       [] {
         f32({2, 3}).slice(1, 2, 1);
       },
       kArgument,
       {"[2, 1)"}},
      {"negative slice",
       [] {
         f32({2, 3}).slice(0, -1, 1);
       },
       kArgument,
       {"-1"}},
      {"embedding, negative",
       [] {
         embedding(i32({-1}), f32({4, 8}));
       },
       kArgument,
       {"-1"}},
      {"embedding, ids",
       [] {
         embedding(f32({1}), f32({4, 8}));
       },
       kArgument,
       {"f32"}},
      {"norm, eps no number",
       [] {
         rms_norm(f32({2, 8}), f32({8}), NAN);
       },
       kUnsupported,
       {"eps"}},
      {"norm, rank",
       [] {
         rms_norm(f32({2, 8}), f32({2, 4}), 0);
       },
       kArgument,
       {"one-dimensional"}},
      {"routing, none",
       [] {
         route(f32({2, 4}), {0, true});
       },
       kArgument,
       {"0"}},
      {"min_p",
       [] {
         SamplingOptions o;
         o.min_p = 2;
         validate(o);
       },
       kArgument,
       {"min_p is 2"}},
      {"repetition_penalty",
       [] {
         SamplingOptions o;
         o.repetition_penalty = 0;
         validate(o);
       },
       kArgument,
       {"repetition_penalty is 0"}},
      {"temperature no number", [] { validate(sampling(NAN, 0, 1)); }, kArgument, {"temperature"}},
      {"top_p above 1", [] { validate(sampling(1, 0, 1.5f)); }, kArgument, {"top_p is 1.5"}},
      {"nvfp4 of a vector", [] { dequantize(f32({4}), Format::nvfp4); }, kArgument, {"nvfp4"}},
      {"convert to int4", [] { convert(f32({2}), Format::int4); }, kArgument, {"int4"}},
      {"cache, layers", [] { KvCache(cache(0, 1, 64, 8)); }, kArgument, {"layers is 0"}},
      {"cache, heads", [] { KvCache(cache(1, 0, 64, 8)); }, kArgument, {"kv_heads is 0"}},
      {"cache, length", [] { KvCache(cache(1, 1, 64, 0)); }, kArgument, {"max_length is 0"}},
      {"rope, dimension", [] { rotate(1, 8, 16, 1e4, 1); }, kUnsupported, {"16", "8"}},
      {"rope, theta", [] { rotate(1, 8, 8, 0, 1); }, kUnsupported, {"theta"}},
      {"rope, positions", [] { rotate(1, 8, 8, 1e4, 3); }, kArgument, {"3"}},
      {"attention, batch",
       [] {
         attention(bf16({2, 2, 2, 64}), bf16({1, 2, 2, 64}), bf16({1, 2, 2, 64}));
       },
       kArgument,
       {"2"}},
      {"attention, values",
       [] {
         attention(bf16({1, 2, 2, 64}), bf16({1, 3, 2, 64}), bf16({1, 2, 2, 64}));
       },
       kArgument,
       {"3"}},
      {"null model", [] { Session(nullptr); }, kArgument, {"model is null"}},
      {"model, weights",
       [] {
         LoadOptions o;
         o.weights = "nvfp5";
         Model::load(kBard, o);
       },
       kArgument,
       {"nvfp5", "nvfp4"}},
      {"model, no file of a model", [] { Model::load("/dev/null"); }, ErrorCode::io, {"/dev/null"}},
      {"session, length",
       [] {
         SessionOptions o;
         o.max_length = 1 << 30;
         Session(Model::load(kBard), o);
       },
       kArgument,
       {"max_length is 1073741824", "512"}},
      {"session, cache",
       [] {
         SessionOptions o;
         o.kv = Format::i32;
         Session(Model::load(kBard), o);
       },
       kUnsupported,
       {"i32"}},
      {"session, activations",
       [] {
         SessionOptions o;
         o.activations = Format::int8;
         Session(Model::load(kBard), o);
       },
       kArgument,
       {"activations is int8"}},
      {"no tokens", [] { bard().forward({}); }, kArgument, {"empty"}},
      {"token outside",
       [] { bard().forward(std::vector<int32_t>{1 << 20}); },
       kArgument,
       {"token 1048576", "768"}},
      {"negative token", [] { bard().forward(std::vector<int32_t>{-7}); }, kArgument, {"-7"}},
      {"too many tokens",
       [] { bard().forward(std::vector<int32_t>(600, 1)); },
       kArgument,
       {"600", "512"}},
      {"truncate", [] { bard().truncate(1000); }, kArgument, {"1000"}},
      {"truncate to nothing less", [] { bard().truncate(-1); }, kArgument, {"-1"}},
      {"generate, tokens",
       [] {
         GenerateOptions o;
         o.max_new_tokens = -1;
         say(o);
       },
       kArgument,
       {"max_new_tokens is -1"}},
      {"generate, stop",
       [] {
         GenerateOptions o;
         o.stop = {""};
         say(o);
       },
       kArgument,
       {"stop"}},
      {"generate, nothing",
       [] { generate(bard(), std::span<const int32_t>()); },
       kArgument,
       {"prompt has no tokens"}},
      {"generate, long prompt",
       [] { say({}, std::string(5000, '7').c_str()); },
       kArgument,
       {"prompt has", "512"}},
      {"score, window", [] { score(bard(), "a text", 1); }, kArgument, {"window is 1"}},
      {"score, empty", [] { score(bard(), ""); }, kArgument, {"text"}},
      {"decode",
       [] { bard().model().tokenizer().decode(std::vector<int32_t>{9999}); },
       kArgument,
       {"9999", "768"}},
      {"save, format", [] { save_checkpoint(kBard, "/tmp/none/x", "int3"); }, kArgument, {"int3"}},
      {"save over the model", [] { save_checkpoint(kBard, kBard, "bf16"); }, kArgument, {"bard"}},
      {"no tokenizer in a directory", [] { Tokenizer::load("/"); }, ErrorCode::io, {"tokenizer"}},
      {"tokenizer of text",
       [] { Tokenizer::load(test::source_path("LICENSE")); },
       kMalformed,
       {"LICENSE"}},
      {"template, tag", [] { ChatTemplate("{% import 'x' as y %}"); }, kUnsupported, {"line 1"}},
      {"template, end", [] { ChatTemplate("\n{{ x"); }, kMalformed, {"line 2", "no end"}},
      {"template, absent", [] { ChatTemplate::load("/dev"); }, ErrorCode::io, {"/dev", "jinja"}},
      {"template, refusal",
       [] { ChatTemplate("{{ raise_exception('no') }}").apply({}); },
       kArgument,
       {"refuses: no"}},
      {"template, undefined", [] { ChatTemplate("{{ a.b }}").apply({}); }, kArgument, {"'a'"}},
      {"template, messages", [] { ChatTemplate("").apply_json("{"); }, kArgument, {"valid JSON"}},
  };
}

void expect_sentence(const WrongCall& wrong) {
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

TEST(WrongArguments, ThrowOneSentenceThatNamesTheMistake) {
  for (const WrongCall& wrong : wrong_calls()) expect_sentence(wrong);
}

TEST(WrongArguments, OfModelsAndConversationsToo) {
  if (access(kBard.c_str(), R_OK) != 0) GTEST_SKIP() << kBard << " is absent";
  for (const WrongCall& wrong : more_wrong_calls()) expect_sentence(wrong);
  // With those of the command line (wrong_calls_test.cpp) well above a hundred.
  EXPECT_GE(wrong_calls().size() + more_wrong_calls().size(), 90u);
}

}  // namespace
}  // namespace halftone

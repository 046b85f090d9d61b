// Broken and hostile tokenizer files: each is an Error whose message names what is wrong.
#include <gtest/gtest.h>

#include <cmath>

#include "engine_files/malformed_case.h"
#include "engine_files/temp_directory.h"
#include "engine_files/tiny_tokenizer.h"
#include "halftone/engine.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::Case;
using test::TempDirectory;
using test::TinyTokenizer;
using Words = std::vector<std::string>;

TEST(Malformed, Llama2cTokenizer) {
  const auto number = [](auto value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const std::string length = number(int32_t{8});
  const Case cases[] = {
      {"empty", "", {"0 bytes"}},
      {"no pieces", length, {"0 pieces"}},
      {"longest piece", number(int32_t{-1}), {"max_token_length is -1"}},
      {"cut score", length + "ab", {"score of piece 0"}},
      {"cut text", length + number(1.0f) + number(int32_t{5}) + "ab", {"text of piece 0"}},
      {"negative length", length + number(1.0f) + number(int32_t{-5}), {"length of piece 0 is -5"}},
      {"huge length", length + number(1.0f) + number(int32_t{1 << 30}), {"length of piece 0"}},
      {"score is no number", length + number(std::nanf("")) + number(int32_t{0}), {"not finite"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const TempDirectory directory;
    const std::string path = directory.write("tokenizer.bin", c.bytes);
    Words words = c.words;
    words.emplace_back("tokenizer.bin: ");
    test::expect_error([&] { Tokenizer::load(path); }, words);
  }
}

TEST(Malformed, TokenizerJson) {
  const auto with = [](auto change) {
    TinyTokenizer tiny;
    change(tiny);
    return tiny.json();
  };
  const auto type = [](const std::string& name) { return R"({"type": ")" + name + "\"}"; };
  using T = TinyTokenizer;
  const Case cases[] = {
      {"no JSON", "{", {"not valid JSON"}},
      {"no model", "{}", {"model", "missing"}},
      {"another model", R"({"model": {"type": "Unigram"}})", {"model.type", "Unigram", "BPE"}},
      {"empty vocabulary", R"({"model": {"vocab": {}, "merges": []}})", {"model.vocab"}},
      {"token number", R"({"model": {"vocab": {"a": -1}, "merges": []}})", {"model.vocab.a is -1"}},
      {"huge token number", R"({"model": {"vocab": {"a": 999999999}, "merges": []}})", {"vocab.a"}},
      {"one number twice",
       R"({"model": {"vocab": {"a": 1, "b": 1}, "merges": []}})",
       {"model.vocab.b is 1", "another"}},
      {"merge of unknown symbols",
       R"({"model": {"vocab": {"a": 1}, "merges": ["a b"]}})",
       {"model.merges[0]", "\"b\""}},
      {"merge to an unknown symbol",
       R"({"model": {"vocab": {"a": 1}, "merges": ["a a"]}})",
       {"model.merges[0]", "\"aa\""}},
      {"merge of three", R"({"model": {"vocab": {"a": 1}, "merges": ["a a a"]}})", {"merges[0]"}},
      {"merge is a number", R"({"model": {"vocab": {"a": 1}, "merges": [3]}})", {"merges[0] is 3"}},
      {"no merges", R"({"model": {"vocab": {"a": 1}}})", {"model.merges", "missing"}},
      {"normalizer",
       with([&](T& t) { t.normalizer = type("Lowercase"); }),
       {"normalizer.type", "Lowercase", "NFC"}},
      {"pre-tokenizer",
       with([&](T& t) { t.pre_tokenizer = type("Metaspace"); }),
       {"pre_tokenizer.type", "Metaspace", "ByteLevel"}},
      {"no ByteLevel", with([&](T& t) { t.pre_tokenizer = "null"; }), {"ByteLevel"}},
      {"bad regex",
       with([](T& t) { t.pre_tokenizer = test::split_pre_tokenizer("(a"); }),
       {"pre_tokenizer.pretokenizers[0].pattern.Regex", "(a"}},
      {"post-processor",
       with([&](T& t) { t.post_processor = type("BertProcessing"); }),
       {"post_processor.type", "BertProcessing"}},
      {"template without text",
       with([](T& t) { t.post_processor = R"({"type": "TemplateProcessing", "single": []})"; }),
       {"post_processor.single"}},
      {"template token",
       with([](T& t) {
         t.post_processor =
             R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}]})";
       }),
       {"special_tokens.<s>.ids"}},
      {"added token without number",
       with([](T& t) { t.added_tokens = R"({"content": "x"})"; }),
       {"added_tokens[0].id", "missing"}},
      {"added token takes a number",
       with([](T& t) { t.added_tokens = test::added_token(256, "<s>", true); }),
       {"added_tokens[0].id is 256", "another"}},
      {"dropout", with([](T& t) { t.model_extra = R"(, "dropout": 0.1)"; }), {"model.dropout"}},
      {"byte fallback",
       with([](T& t) { t.model_extra = R"(, "byte_fallback": true)"; }),
       {"pre_tokenizer.type", "ByteLevel", "byte_fallback"}},
      {"pre-tokenizer beside byte fallback",
       test::byte_fallback_json("null", type("Digits")),
       {"pre_tokenizer.type", "Digits", "Metaspace"}},
      {"a long replacement",
       test::byte_fallback_json(R"({"type": "Prepend", "prepend": "12345678901234567"})"),
       {"normalizer.prepend", "17 bytes"}},
      {"replacing nothing",
       test::byte_fallback_json(
           R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})"),
       {"normalizer.pattern.String", "not empty"}},
      {"unknown token",
       with([](T& t) { t.model_extra = R"(, "unk_token": "<unk>")"; }),
       {"model.unk_token", "<unk>"}},
      {"prefix",
       with([](T& t) { t.model_extra = R"(, "continuing_subword_prefix": "##")"; }),
       {"continuing_subword_prefix", "##"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const TempDirectory directory;
    const std::string path = directory.write("tokenizer.json", c.bytes);
    Words words = c.words;
    words.emplace_back("tokenizer.json: ");
    test::expect_error([&] { Tokenizer::load(path); }, words);
  }
}

// Steps that each double the text.
TEST(Malformed, NormalizerThatExplodes) {
  std::string steps;
  for (int i = 0; i < 40; ++i) {
    steps += i == 0 ? "" : ", ";
    steps += R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  }
  const TempDirectory directory;
  const std::string path = directory.write(
      "tokenizer.json",
      test::byte_fallback_json(R"({"type": "Sequence", "normalizers": [)" + steps + "]}"));
  const auto tokenizer = Tokenizer::load(path);
  test::expect_error([&] { tokenizer->encode("aaaa"); }, {"tokenizer.json", "normalizer"});
  EXPECT_EQ(tokenizer->encode("b").size(), 2u);
}

}  // namespace
}  // namespace halftone

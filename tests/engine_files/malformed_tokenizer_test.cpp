// Broken and hostile tokenizer files: each is an Error whose message names what is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "engine/tokenizer/pipeline_tokenizer.h"
#include "engine_files/malformed_case.h"
#include "engine_files/temp_directory.h"
#include "engine_files/tiny_sentencepiece.h"
#include "engine_files/tiny_tokenizer.h"
#include "halftone/engine.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::Case;
using test::TempDirectory;
using test::TinyTokenizer;
using Words = std::vector<std::string>;

// Each message begins with the file's name.
void expect_refused(std::span<const Case> cases, const std::string& name) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const TempDirectory directory;
    const std::string path = directory.write(name, c.bytes);
    std::vector<std::string> words = c.words;
    words.push_back(name + ": ");
    test::expect_error([&] { Tokenizer::load(path); }, words);
  }
}

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
  expect_refused(cases, "tokenizer.bin");
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
      {"another model",
       R"({"model": {"type": "WordPiece"}})",
       {"model.type", "WordPiece", "BPE", "Unigram"}},
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
       with([&](T& t) { t.normalizer = type("BertNormalizer"); }),
       {"normalizer.type", "BertNormalizer", "NFC"}},
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
       {"pre_tokenizer.type", "ByteLevel", "of text"}},
      {"pre-tokenizer beside byte fallback",
       test::byte_fallback_json("null", type("BertPreTokenizer")),
       {"pre_tokenizer.type", "BertPreTokenizer", "Metaspace"}},
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
  expect_refused(cases, "tokenizer.json");
}

TEST(Malformed, UnigramJson) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = test::unigram_json();
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const Case cases[] = {
      {"no vocabulary", R"({"model": {"type": "Unigram"}})", {"model.vocab is missing"}},
      {"empty vocabulary",
       R"({"model": {"type": "Unigram", "vocab": []}})",
       {"model.vocab has 0 pieces"}},
      {"a piece alone", with(R"(["a", -2.5])", R"(["a"])"), {"model.vocab[3]", "score"}},
      {"score is text", with(R"(["a", -2.5])", R"(["a", "x"])"), {"model.vocab[3]", "score"}},
      {"a piece twice", with(R"(["a", -2.5])", R"(["<s>", -2.5])"), {"model.vocab[3]", "no other"}},
      {"a long piece",
       with(R"(["a", -2.5])", "[\"" + std::string(1025, 'a') + "\", -2.5]"),
       {"model.vocab[3]", "1024"}},
      {"unknown token", with(R"("unk_id": 0)", R"("unk_id": 99)"), {"model.unk_id is 99"}},
      {"map is no base64",
       with(R"("precompiled_charsmap": ")", R"("precompiled_charsmap": "*)"),
       {"normalizers[0].precompiled_charsmap", "base64"}},
      {"map is cut",
       with(R"("precompiled_charsmap": ")", R"("precompiled_charsmap": "/////w==", "x": ")"),
       {"normalizers[0].precompiled_charsmap", "trie"}},
      {"bytes behind text",
       with(R"({"type": "Metaspace")", R"({"type": "ByteLevel")"),
       {"pre_tokenizer.type", "ByteLevel", "Metaspace"}},
      {"decoder",
       with(R"("decoder": {"type": "Metaspace")", R"("decoder": {"type": "WordPiece")"),
       {"decoder.type", "WordPiece", "Metaspace"}},
      {"decoder's strip",
       with(R"("decoder": {"type": "Metaspace")", R"("decoder": {"type": "Strip", "content": "x")"),
       {"decoder", "one space"}},
  };
  expect_refused(cases, "tokenizer.json");
}

TEST(Malformed, SentencePiece) {
  using test::bytes_field;
  using test::integer_field;
  using test::TinySentencePiece;
  using Type = TinySentencePiece::Type;
  const auto with = [](auto change) {
    TinySentencePiece model;
    model.pieces = {{"<unk>", 0, Type::unknown}, {"a", -1, Type::normal}};
    change(model);
    return model.bytes();
  };
  using M = TinySentencePiece;
  const auto charsmap = [&](const std::string& blob) {
    return with([&](M& m) { m.normalizer = bytes_field(2, blob); });
  };
  const std::string unit(4, '\0');
  const Case cases[] = {
      {"empty", "", {"none of its 0 pieces is unknown"}},
      {"text", "hello world, this is no model", {"ModelProto, field 13"}},
      {"cut number", "\x0a\x80", {"field 1", "ends inside a number"}},
      {"endless number", "\x0a" + std::string(11, '\xff'), {"more than 10 bytes"}},
      {"longer than the file", "\x0a\x50\x0a\x01", {"length is 80", "2 bytes more"}},
      {"group", "\x0b", {"field 1", "wire type 3"}},
      {"field 0", std::string(2, '\0'), {"the next field is 0"}},
      {"piece of the wrong type", integer_field(1, 5), {"ModelProto, field 1", "must be 2"}},
      {"no text", with([](M& m) { m.pieces[1].text = ""; }), {"piece 1 has 0 bytes"}},
      {"long text", with([](M& m) { m.pieces[1].text = std::string(2000, 'a'); }), {"2000 bytes"}},
      {"type", with([](M& m) { m.pieces[1].type = Type{9}; }), {"type of piece 1 is 9"}},
      {"score", with([](M& m) { m.pieces[1].score = std::nanf(""); }), {"score of piece 1"}},
      {"double", with([](M& m) { m.pieces.push_back(m.pieces[1]); }), {"piece 2 is \"a\""}},
      {"no unknown", with([](M& m) { m.pieces[0].type = Type::normal; }), {"2 pieces is unknown"}},
      {"two unknown", with([](M& m) { m.pieces[1].type = Type::unknown; }), {"pieces 0 and 1"}},
      {"byte", with([](M& m) { m.pieces[1].type = Type::byte; }), {"\"a\"", "<0xFF>"}},
      {"few bytes", with([](M& m) { m.byte_fallback = true; }), {"0 of the 256 bytes"}},
      {"word model", with([](M& m) { m.kind = 3; }), {"model_type is 3", "unigram"}},
      {"short map", charsmap("abc"), {"precompiled_charsmap has 3 bytes"}},
      {"empty trie", charsmap(unit), {"trie of 0 bytes"}},
      {"trie longer than the map", charsmap("\x10" + std::string(7, '\0')), {"trie of 16", "4"}},
      {"odd trie", charsmap("\x03" + std::string(7, '\0')), {"trie of 3 bytes", "multiple of 4"}},
      {"text without end", charsmap(std::string("\x04\0\0\0\0\0\0\0x", 9)), {"inside a text"}},
  };
  expect_refused(cases, "tokenizer.model");
}

TEST(Malformed, Tiktoken) {
  const std::string first = "YQ== 0\n";
  const Case cases[] = {
      {"unknown vocabulary", first, {"1 ranks", "50256"}},
      {"no rank", first + "Yg==\n", {"2 ranks"}},
  };
  expect_refused(cases, "x.tiktoken");
  const Case lines[] = {
      {"no rank", "Yg==\n", {"line 2", "\"Yg==\""}},
      {"no base64", "Y! 1\n", {"line 2", "base64"}},
      {"half a group", "Yg= 1\n", {"line 2"}},
      {"padding inside", "Y=g= 1\n", {"line 2"}},
      {"negative", "Yg== -1\n", {"line 2"}},
      {"large", "Yg== 1048576\n", {"line 2", "below 1048576"}},
      {"larger", "Yg== 99999999999999999999\n", {"line 2"}},
      {"rank twice", "Yg== 0\n", {"line 2", "rank 0", "another token"}},
      {"token twice", "YQ== 1\n", {"line 2", "rank 1", "has one"}},
      {"missing bytes", "Yg== 1\n", {"no rank for the byte 0"}},
  };
  for (const Case& c : lines) {
    SCOPED_TRACE(c.name);
    Words words = c.words;
    words.emplace_back("x.tiktoken: ");
    test::expect_error(
        [&] {
          PipelineTokenizer(first + c.bytes, {R"(\S+)", {}, -1}, "x.tiktoken");
        },
        words);
  }
  std::string bytes;
  for (int b = 0; b < 256; ++b) {
    bytes += test::base64(std::string(1, static_cast<char>(b))) + " " + std::to_string(b) + "\n";
  }
  test::expect_error(
      [&] {
        PipelineTokenizer(bytes, {R"(\S+)", {{5, "<|end|>"}}, -1}, "x.tiktoken");
      },
      {"the rank 5", "<|end|>"});
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

// SentencePiece models and tiktoken files made by hand: what the goldens do not reach.
#include <gtest/gtest.h>

#include "engine/tokenizer/pipeline_tokenizer.h"
#include "engine/tokenizer/tiktoken.h"
#include "engine_files/temp_directory.h"
#include "engine_files/tiny_sentencepiece.h"
#include "halftone/engine.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::TempDirectory;
using test::TinySentencePiece;
using Ids = std::vector<int32_t>;
using Type = TinySentencePiece::Type;

// 0 <unk>, 1 <s>, 2 </s>, then a b ab, and the sign for the space.
TinySentencePiece tiny() {
  TinySentencePiece model;
  model.pieces = {{"<unk>", 0, Type::unknown},  {"<s>", 0, Type::control},
                  {"</s>", 0, Type::control},   {"a", -2, Type::normal},
                  {"b", -3, Type::normal},      {"ab", -1, Type::normal},
                  {"\u2581", -4, Type::normal}, {"\u2581ab", -1.5f, Type::normal}};
  return model;
}

std::unique_ptr<Tokenizer> load(const TinySentencePiece& model, const std::string& config = "") {
  const TempDirectory directory;
  directory.write("tokenizer.model", model.bytes());
  if (!config.empty()) directory.write("tokenizer_config.json", config);
  return Tokenizer::load(directory.path());
}

TEST(SentencePiece, BosAndControlPiecesInTheText) {
  for (const int kind : {1, 2}) {
    TinySentencePiece model = tiny();
    model.kind = kind;
    const auto tokenizer = load(model);
    EXPECT_EQ(tokenizer->encode("ab ab"), (Ids{1, 7, 7}));
    EXPECT_EQ(tokenizer->encode("ab</s>ab"), (Ids{1, 7, 2, 7}));
    EXPECT_EQ(tokenizer->encode("ab", false), (Ids{7}));
    EXPECT_EQ(tokenizer->encode("xy ab", false), (Ids{6, 0, 7}));  // a run of unknown: one token
    EXPECT_EQ(tokenizer->encode(""), (Ids{1}));
    EXPECT_EQ(tokenizer->decode(Ids{1, 7, 7, 2}), "ab ab");
    EXPECT_EQ(tokenizer->decode(Ids{1, 7, 2}, false), "<s> ab</s>");
    EXPECT_EQ(tokenizer->piece(7), " ab");
    EXPECT_EQ(tokenizer->piece(7, 1), "ab");
    EXPECT_EQ(tokenizer->piece(7, 3), " ab");
    test::expect_error([&] { tokenizer->piece(8); }, {"token 8", "vocabulary of 8"});
  }
}

TEST(SentencePiece, ConfigurationBesideTheModel) {
  const auto tokenizer = load(tiny(), R"({"add_bos_token": false, "add_eos_token": true,
      "added_tokens_decoder": {"1": {"content": "<s>", "special": true},
                               "9": {"content": "<|im_end|>", "special": true},
                               "10": {"content": "<think>", "special": false}}})");
  EXPECT_EQ(tokenizer->size(), 11);
  EXPECT_EQ(tokenizer->encode("ab<|im_end|><think>"), (Ids{7, 9, 10, 2}));
  EXPECT_EQ(tokenizer->encode("<think>", false), (Ids{10}));
  EXPECT_EQ(tokenizer->decode(Ids{7, 9, 10}), "ab<think>");
  EXPECT_EQ(tokenizer->piece(9), "");
  EXPECT_EQ(tokenizer->piece(10), "<think>");
  test::expect_error([] { load(tiny(), R"({"added_tokens_decoder": {"x1": {"content": "y"}}})"); },
                     {"added_tokens_decoder.x1", "token number"});
}

TEST(SentencePiece, BytesOfCharactersThatHaveNoPiece) {
  TinySentencePiece model = tiny();
  model.add_byte_pieces();
  const auto tokenizer = load(model);
  const Ids ids = tokenizer->encode("a\u00e9", false);
  EXPECT_EQ(ids, (Ids{6, 3, 8 + 0xc3, 8 + 0xa9}));
  EXPECT_EQ(tokenizer->decode(ids), "a\u00e9");
  EXPECT_EQ(tokenizer->decode(Ids{3, 8 + 0xc3}), "a\ufffd");
  Utf8Stream stream;
  EXPECT_EQ(stream.push(tokenizer->piece(8 + 0xc3)), "");
  EXPECT_EQ(stream.push(tokenizer->piece(8 + 0xa9)), "\u00e9");
}

// The best segmentation, not the greedy one: ab + c costs more than a + bc.
TEST(SentencePiece, UnigramTakesTheLikeliestSegmentation) {
  TinySentencePiece model = tiny();
  model.pieces.push_back({"bc", -1, Type::normal});
  model.pieces.push_back({"c", -9, Type::normal});
  EXPECT_EQ(load(model)->encode("abc", false), (Ids{6, 3, 8}));
  model.pieces.back().score = -0.25f;
  EXPECT_EQ(load(model)->encode("abc", false), (Ids{7, 9}));
}

std::string ranks_of_bytes(size_t count) {
  std::string file;
  for (size_t i = 0; i < count; ++i) {
    std::string token(1, static_cast<char>(i % 256));
    if (i >= 256) token += std::to_string(i);
    file += test::base64(token) + " " + std::to_string(i) + "\n";
  }
  return file;
}

TEST(Tiktoken, KnownVocabulariesByTheirNumberOfRanks) {
  const TempDirectory directory;
  directory.write("any.tiktoken", ranks_of_bytes(50257));
  const auto whisper = Tokenizer::load(directory.path());
  EXPECT_EQ(whisper->size(), 51865);
  EXPECT_EQ(whisper->encode("<|startoftranscript|><|en|><|notimestamps|>"),
            (Ids{50258, 50259, 50363}));
  EXPECT_EQ(whisper->encode("<|30.00|><|0.00|><|1.02|>"), (Ids{51864, 50364, 50364 + 51}));
  EXPECT_EQ(whisper->encode("a<|en|>", false).size(), 7u);  // text like any other
  EXPECT_EQ(whisper->decode(Ids{50258, 97}, true), "a");
  EXPECT_EQ(whisper->decode(Ids{50258, 97}, false), "<|startoftranscript|>a");
  // large-v3 has one language more.
  EXPECT_EQ(Tokenizer::load(directory.path(), 51866)->encode("<|yue|><|0.00|>"),
            (Ids{50358, 50365}));

  const auto last = [](int64_t ranks, int64_t model = 0) {
    return tiktoken_vocabulary(ranks, model, "f").special.back();
  };
  using Special = std::pair<int32_t, std::string>;
  EXPECT_EQ(last(50256), Special(50256, "<|endoftext|>"));
  EXPECT_EQ(last(50256, 51864), Special(51863, "<|30.00|>"));
  EXPECT_EQ(last(100256), Special(100276, "<|endofprompt|>"));
  EXPECT_EQ(last(128000), Special(128255, "<|reserved_special_token_247|>"));
  EXPECT_EQ(last(151643), Special(151645, "<|im_end|>"));
  EXPECT_EQ(last(199998), Special(201087, "<|reserved_201087|>"));
  EXPECT_EQ(last(200000), Special(200008, "<|eot|>"));
  EXPECT_EQ(tiktoken_vocabulary(128000, 0, "f").special[9], Special(128009, "<|eot_id|>"));
  EXPECT_EQ(tiktoken_vocabulary(199998, 0, "f").special[10], Special(200008, "<|message|>"));
  test::expect_error([] { tiktoken_vocabulary(300, 0, "f.tiktoken"); },
                     {"f.tiktoken", "300 ranks", "128000"});
}

TEST(Tiktoken, JoinsByTheRankOfTheUnion) {
  // ab first, though bc would leave fewer tokens; a word that is a token is never taken apart.
  std::string file = ranks_of_bytes(256);
  int rank = 256;
  for (const char* token : {"ab", "bc", "bcd", "xyz"}) {
    file += test::base64(token) + " " + std::to_string(rank++) + "\r\n";
  }
  const TiktokenVocabulary vocabulary{R"(\p{L}+|\s+)", {{300, "<|end|>"}}, 300};
  const PipelineTokenizer bpe(file, vocabulary, "f");
  const Tokenizer& tokenizer = bpe;
  EXPECT_EQ(tokenizer.encode("abcd xyz", false), (Ids{256, 'c', 'd', ' ', 259}));
  EXPECT_EQ(tokenizer.encode("bcd<|end|>"), (Ids{300, 258, 300}));
  EXPECT_EQ(tokenizer.size(), 301);
  EXPECT_EQ(tokenizer.decode(Ids{257, 299}), "bc");
}

}  // namespace
}  // namespace halftone

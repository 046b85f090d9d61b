// What the reference tokenizers make of nasty strings: tests/fixtures/tokenizers.
#include <gtest/gtest.h>

#include "engine/json.h"
#include "halftone/engine.h"
#include "support/compare.h"
#include "support/source_path.h"

namespace halftone {
namespace {

std::vector<int32_t> tokens(const JsonField& field) {
  std::vector<int32_t> result;
  for (const JsonField& item : field.items()) {
    result.push_back(static_cast<int32_t>(item.integer(0, 1 << 20)));
  }
  return result;
}

TEST(TokenizerGoldens, EveryString) {
  const std::string root = test::source_path("tests/fixtures/tokenizers/");
  for (const char* family : {"gpt2", "llama3", "qwen"}) {
    const std::string directory = root + family;
    const auto tokenizer = Tokenizer::load(directory);
    const std::string path = directory + "/goldens.json";
    const Json json = Json::read(path);
    const std::vector<JsonField> rows = JsonField(&json, path).items();
    EXPECT_GE(rows.size(), 100u);
    for (const JsonField& row : rows) {
      const std::string& text = row["text"].text();
      SCOPED_TRACE(std::string(family) + " [" + text + "]");
      const std::vector<int32_t> ids = tokens(row["ids"]);
      EXPECT_EQ(tokenizer->encode(text, true), tokens(row["ids_with_special"]));
      EXPECT_EQ(tokenizer->decode(ids, false), row["decoded"].text());
      // The reference always finds special tokens in a text; here `special` decides.
      std::string skipped, plain;
      for (const int32_t id : ids) {
        plain += tokenizer->decode({&id, 1}, false);
        skipped += tokenizer->decode({&id, 1}, true);
      }
      if (plain == skipped) {
        EXPECT_EQ(tokenizer->encode(text, false), ids);
      } else {
        const std::vector<int32_t> as_text = tokenizer->encode(text, false);
        EXPECT_EQ(tokenizer->decode(as_text, true), row["decoded"].text());
      }
      // Streaming gives the same text.
      Utf8Stream stream;
      std::string streamed;
      for (const int32_t id : ids) streamed += stream.push(tokenizer->piece(id));
      streamed += stream.flush();
      EXPECT_EQ(streamed, tokenizer->decode(ids, true));
    }
  }
}

TEST(TokenizerGoldens, UnigramJson) {
  const std::string root = test::source_path("tests/fixtures/tokenizers/");
  for (const char* form : {"translation", "words", "bytes"}) {
    const std::string directory = root + "unigram_json_" + form;
    const auto tokenizer = Tokenizer::load(directory);
    const std::string path = directory + "/goldens.json";
    const Json json = Json::read(path);
    const std::vector<JsonField> rows = JsonField(&json, path).items();
    EXPECT_GE(rows.size(), 150u);
    for (const JsonField& row : rows) {
      const std::string& text = row["text"].text();
      SCOPED_TRACE(std::string(form) + " [" + text + "]");
      const std::vector<int32_t> ids = tokens(row["ids"]);
      EXPECT_EQ(tokenizer->encode(text, true), tokens(row["ids_with_special"]));
      EXPECT_EQ(tokenizer->decode(ids, false), row["decoded"].text());
      Utf8Stream stream;
      std::string streamed;
      constexpr int32_t kSpecial = 1;  // what comes behind it begins a text
      bool first = true;
      for (const int32_t id : ids) {
        streamed += stream.push(tokenizer->piece(id, first ? kSpecial : -1));
        first = first && tokenizer->piece(id).empty();  // special
      }
      EXPECT_EQ(streamed + stream.flush(), tokenizer->decode(ids, true));
    }
  }
}

// The .model and the tokenizer.json made of it part where they must: the model's unused piece is a
// token of the file (5 strings), special tokens are found in a text (3), a space sign in a text is
// one (1), and the library reads the map by clusters of marks (4).
TEST(TokenizerGoldens, UnigramOfBothFiles) {
  const std::string root = test::source_path("tests/fixtures/tokenizers/");
  const auto model = Tokenizer::load(root + "unigram_nfkc");
  const auto converted = Tokenizer::load(root + "unigram_json_translation");
  const std::string path = root + "unigram_json_translation/goldens.json";
  const Json json = Json::read(path);
  int different = 0;
  for (const JsonField& row : JsonField(&json, path).items()) {
    const std::string& text = row["text"].text();
    different += model->encode(text, false) != converted->encode(text, false);
  }
  EXPECT_EQ(different, 13);
}

// The sentencepiece library never finds control pieces in a text and adds none around it.
TEST(TokenizerGoldens, SentencePiece) {
  const std::string root = test::source_path("tests/fixtures/tokenizers/");
  for (const char* model : {"bpe_identity", "bpe_nfkc_cf", "unigram_nfkc", "unigram_user"}) {
    const std::string directory = root + model;
    const auto tokenizer = Tokenizer::load(directory);
    const std::string path = directory + "/goldens.json";
    const Json json = Json::read(path);
    const std::vector<JsonField> rows = JsonField(&json, path).items();
    EXPECT_GE(rows.size(), 130u);
    for (const JsonField& row : rows) {
      const std::string& text = row["text"].text();
      SCOPED_TRACE(std::string(model) + " [" + text + "]");
      const std::vector<int32_t> ids = tokens(row["ids"]);
      EXPECT_EQ(tokenizer->encode(text, false), ids);
      EXPECT_EQ(tokenizer->decode(ids), row["decoded"].text());
    }
  }
}

TEST(TokenizerGoldens, Tiktoken) {
  for (const auto& [name, file] : {std::pair("tiktoken_llama3", "llama3_tokenizer.model"),
                                   {"tiktoken_whisper", "whisper_multilingual.tiktoken"}}) {
    const std::string shared = test::shared_data(std::string("tokenizers/") + file);
    if (shared.empty()) GTEST_SKIP() << file << " is not beside the checkout";
    const auto tokenizer = Tokenizer::load(shared);
    const std::string path =
        test::source_path("tests/fixtures/tokenizers/") + name + "/goldens.json";
    const Json json = Json::read(path);
    const std::vector<JsonField> rows = JsonField(&json, path).items();
    EXPECT_GE(rows.size(), 130u);
    for (const JsonField& row : rows) {
      const std::string& text = row["text"].text();
      SCOPED_TRACE(std::string(name) + " [" + text + "]");
      const std::vector<int32_t> ids = tokens(row["ids"]);
      EXPECT_EQ(tokenizer->encode(text, false), ids);
      EXPECT_EQ(tokenizer->decode(ids), text);
    }
  }
}

}  // namespace
}  // namespace halftone

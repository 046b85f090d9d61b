#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "engine/tokenizer/splitter.h"
#include "engine_files/temp_directory.h"
#include "engine_files/tiny_tokenizer.h"
#include "halftone/engine.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::added_token;
using test::TempDirectory;
using test::TinyTokenizer;
using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> load(const TinyTokenizer& tiny) {
  const TempDirectory directory;
  directory.write("tokenizer.json", tiny.json());
  return Tokenizer::load(directory.path());
}

TEST(JsonTokenizer, MergesInTheOrderOfTheList) {
  const auto tokenizer = load({});
  EXPECT_EQ(tokenizer->encode("hello world"), (Ids{259, 261, 'r', 'l', 'd'}));
  EXPECT_EQ(tokenizer->encode("helo"), (Ids{256, 'l', 'o'}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
  EXPECT_EQ(tokenizer->size(), 256 + 7);
  EXPECT_EQ(tokenizer->piece(260), " w");
  EXPECT_EQ(tokenizer->decode(Ids{259, 261, 'r', 'l', 'd'}), "hello world");
  // Half of a character: a piece is bytes, a text is UTF-8.
  EXPECT_EQ(tokenizer->piece(0xc3), "\xc3");
  EXPECT_EQ(tokenizer->decode(Ids{'a', 0xc3}), "a\ufffd");
  test::expect_error([&] { tokenizer->piece(263); }, {"263"});
  test::expect_error([&] { tokenizer->decode(Ids{-1}); }, {"-1"});
}

TEST(JsonTokenizer, IgnoreMergesTakesWholeWords) {
  TinyTokenizer tiny;
  tiny.extra_vocabulary = {"zebra"};
  EXPECT_EQ(load(tiny)->encode("zebra").size(), 5u);
  tiny.model_extra = R"(, "ignore_merges": true)";
  EXPECT_EQ(load(tiny)->encode("zebra"), (Ids{263}));
  EXPECT_EQ(load(tiny)->encode("hello zebras").size(), 1 + 7u);
}

TEST(JsonTokenizer, SpecialTokensAndTheTemplate) {
  TinyTokenizer tiny;
  tiny.added_tokens = added_token(263, "<s>", true) + ", " + added_token(264, "</s>", true) + ", " +
                      added_token(265, "<think>", false);
  tiny.post_processor =
      R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
          "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}}],
          "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [263], "tokens": ["<s>"]}}}]})";
  const auto tokenizer = load(tiny);
  EXPECT_EQ(tokenizer->encode("hello</s><think>"), (Ids{263, 259, 264, 265}));
  EXPECT_EQ(tokenizer->encode("", true), (Ids{263}));
  // Without special tokens their text is text; additions that are not special are still found.
  EXPECT_EQ(tokenizer->encode("</s><think>", false), (Ids{'<', '/', 's', '>', 265}));
  EXPECT_EQ(tokenizer->decode(Ids{263, 259, 264, 265}), "hello<think>");
  EXPECT_EQ(tokenizer->decode(Ids{263, 259, 264, 265}, false), "<s>hello</s><think>");
  EXPECT_EQ(tokenizer->piece(264), "");
}

TEST(JsonTokenizer, AddedTokensStripAndStandAlone) {
  TinyTokenizer tiny;
  tiny.added_tokens = added_token(263, "Le", false, R"(, "lstrip": true)") + ", " +
                      added_token(264, "Ri", false, R"(, "rstrip": true)") + ", " +
                      added_token(265, "Wo", false, R"(, "single_word": true)") + ", " +
                      added_token(266, "LeLe", false);
  const auto tokenizer = load(tiny);
  EXPECT_EQ(tokenizer->encode("a  Leb"), (Ids{'a', 263, 'b'}));
  EXPECT_EQ(tokenizer->encode("aRi \n b"), (Ids{'a', 264, 'b'}));
  EXPECT_EQ(tokenizer->encode("Wo!Wo"), (Ids{265, '!', 265}));
  EXPECT_EQ(tokenizer->encode("aWo"), (Ids{'a', 'W', 'o'}));
  EXPECT_EQ(tokenizer->encode("LeLeLe"), (Ids{266, 263}));  // the longest first
  EXPECT_EQ(tokenizer->encode("Ri  Le"), (Ids{264, 263}));
}

TEST(JsonTokenizer, NormalisesBetweenAddedTokens) {
  TinyTokenizer tiny;
  tiny.normalizer = R"({"type": "NFC"})";
  tiny.merges = {{test::byte_symbol(0xc3), test::byte_symbol(0xa9)}};
  tiny.added_tokens = added_token(257, "e\u0301!", false, R"(, "normalized": true)") + ", " +
                      added_token(258, "e\u0301?", false, R"(, "normalized": false)");
  const auto tokenizer = load(tiny);
  EXPECT_EQ(tokenizer->encode("e\u0301"), (Ids{256}));
  EXPECT_EQ(tokenizer->encode("\u00e9!"), (Ids{257}));
  EXPECT_EQ(tokenizer->encode("e\u0301!"), (Ids{257}));
  EXPECT_EQ(tokenizer->encode("e\u0301?"), (Ids{258}));
  EXPECT_EQ(tokenizer->encode("\u00e9?"), (Ids{256, '?'}));
}

// Any text comes back, with every pattern; so do bytes that are no UTF-8, piece by piece.
TEST(JsonTokenizer, RoundTrips) {
  std::mt19937 random(9);
  TinyTokenizer tinies[4];
  tinies[1].pre_tokenizer = test::split_pre_tokenizer(kLlama3Regex);
  tinies[2].pre_tokenizer = test::split_pre_tokenizer(kQwenRegex);
  tinies[3].pre_tokenizer = test::split_pre_tokenizer(R"(\w+|[^\w\s]+)");
  for (const TinyTokenizer& tiny : tinies) {
    const auto tokenizer = load(tiny);
    for (int i = 0; i < 1500; ++i) {
      std::string text;
      for (size_t n = random() % 24; n > 0; --n) {
        if (random() % 3 == 0) {
          text += random() % 2 == 0 ? "hello world 12 " : "\n ";
        } else if (i % 2 == 0) {
          append_utf8(text, static_cast<int32_t>(random() % 0xd800));
        } else {
          text += static_cast<char>(random());
        }
      }
      const Ids ids = tokenizer->encode(text);
      EXPECT_EQ(tokenizer->encode(text), ids);
      std::string joined;
      for (const int32_t id : ids) joined += tokenizer->piece(id);
      ASSERT_EQ(joined, text);
      ASSERT_EQ(tokenizer->decode(ids), valid_utf8(text));
    }
  }
}

std::unique_ptr<Tokenizer> load_json(const std::string& json) {
  const TempDirectory directory;
  return Tokenizer::load(directory.write("tokenizer.json", json));
}

TEST(JsonTokenizer, CharactersWithByteFallback) {
  const auto tokenizer = load_json(test::byte_fallback_json());
  EXPECT_EQ(tokenizer->encode("ab \u00e9"), (Ids{1, 263, 259, 3 + 0xc3, 3 + 0xa9}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 263, 259, 3 + 0xc3, 3 + 0xa9}), "ab \u00e9");
  EXPECT_EQ(tokenizer->decode(Ids{1, 263}, false), "<s> ab");
  EXPECT_EQ(tokenizer->encode("", true), (Ids{1}));
  // The space that begins a text belongs to it only behind other text.
  EXPECT_EQ(tokenizer->piece(263, 1), "ab");
  EXPECT_EQ(tokenizer->piece(263, 260), " ab");
  EXPECT_EQ(tokenizer->encode("a</s>ab"), (Ids{1, 259, 260, 2, 263}));

  const auto metaspace = [](const std::string& scheme) {
    return load_json(test::byte_fallback_json(
        "null", R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": ")" + scheme +
                    R"(", "split": false})"));
  };
  EXPECT_EQ(metaspace("always")->encode("ab</s>ab", true), (Ids{1, 263, 2, 263}));
  EXPECT_EQ(metaspace("first")->encode("ab</s>ab", true), (Ids{1, 263, 2, 262}));
  EXPECT_EQ(metaspace("never")->encode("ab</s> ab", true), (Ids{1, 262, 2, 263}));
}

TEST(JsonTokenizer, SeveralThreadsShareOne) {
  TinyTokenizer tiny;
  tiny.normalizer = R"({"type": "NFC"})";
  tiny.pre_tokenizer = test::split_pre_tokenizer(R"(\w+|[^\w]+)");
  const auto tokenizer = load(tiny);
  std::string text;
  for (int i = 0; i < 200; ++i) text += "hello wo\u00e9 " + std::to_string(i * 7919);
  const Ids expected = tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      if (tokenizer->encode(text) != expected || tokenizer->decode(expected) != text) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// --- llama2.c ------------------------------------------------------------------------------------

// Pieces of a tokenizer.bin, read again by the plainest code.
std::vector<std::pair<float, std::string>> read_pieces(const std::string& path) {
  const std::string bytes = test::read_file(path);
  std::vector<std::pair<float, std::string>> pieces;
  for (size_t at = 4; at < bytes.size();) {
    float score;
    int32_t length;
    std::memcpy(&score, bytes.data() + at, 4);
    std::memcpy(&length, bytes.data() + at + 4, 4);
    pieces.emplace_back(score, bytes.substr(at + 8, static_cast<size_t>(length)));
    at += 8 + static_cast<size_t>(length);
  }
  return pieces;
}

// The definition: characters, else bytes; then the neighbours that spell the piece with the
// highest score join, the leftmost of equals first.
Ids by_definition(const std::vector<std::pair<float, std::string>>& pieces,
                  const std::string& text) {
  std::map<std::string, int32_t> number;
  for (size_t i = 0; i < pieces.size(); ++i) {
    number.emplace(pieces[i].second, static_cast<int32_t>(i));
  }
  Ids ids = {number.at(" ")};
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    while (end < text.size() && (text[end] & 0xc0) == 0x80 && end - i < 4) ++end;
    const auto known = number.find(text.substr(i, end - i));
    if (known != number.end()) {
      ids.push_back(known->second);
    } else {
      for (size_t b = i; b < end; ++b) ids.push_back(static_cast<unsigned char>(text[b]) + 3);
    }
    i = end;
  }
  for (;;) {
    float best_score = -1e10f;
    size_t best = ids.size();
    int32_t joined = -1;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto place = number.find(pieces[static_cast<size_t>(ids[i])].second +
                                     pieces[static_cast<size_t>(ids[i + 1])].second);
      if (place == number.end()) continue;
      const float score = pieces[static_cast<size_t>(place->second)].first;
      if (score > best_score) best_score = score, best = i, joined = place->second;
    }
    if (best == ids.size()) return ids;
    ids[best] = joined;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(Llama2cTokenizer, FollowsTheDefinitionAndRoundTrips) {
  const std::string path = test::shared_data("models/stories260K/tok512.bin");
  if (path.empty()) GTEST_SKIP() << "no shared data: models/stories260K";
  const auto pieces = read_pieces(path);
  const auto tokenizer = Tokenizer::load(path);
  ASSERT_EQ(tokenizer->size(), 512);
  EXPECT_EQ(tokenizer->encode("Once upon a time"), (Ids{1, 403, 407, 261, 378}));
  EXPECT_EQ(tokenizer->encode(""), (Ids{1}));
  EXPECT_EQ(tokenizer->encode("", false), Ids{});
  std::mt19937 random(4);
  const char* words[] = {
      "Once", " upon", " a",     " time", ", there", "Lily",     "'s",
      "\n",   " was",  "ing",    "é",     "😀",       "the",      " ",
      "  ",   "<s>",   "<0x41>", "zxq",   "\xff",    "\xf0\x9f", " She said, \"I am happy.\""};
  for (int i = 0; i < 1000; ++i) {
    std::string text;
    for (size_t n = 1 + random() % 30; n > 0; --n) text += words[random() % std::size(words)];
    Ids expected = by_definition(pieces, text);
    ASSERT_EQ(tokenizer->encode(text, false), expected) << text;
    expected.insert(expected.begin(), 1);
    ASSERT_EQ(tokenizer->encode(text), expected) << text;
    if (text.find("<0x") != std::string::npos || text.find("<s>") != std::string::npos) continue;
    ASSERT_EQ(tokenizer->decode(expected), valid_utf8(text));
  }
}

TEST(Llama2cTokenizer, IsFoundBesideItsCheckpoint) {
  const std::string path = test::shared_data("models/stories260K/stories260K.bin");
  if (path.empty()) GTEST_SKIP() << "no shared data: models/stories260K";
  EXPECT_EQ(Tokenizer::load(path)->size(), 512);
  const TempDirectory directory;
  const std::string model = directory.write("model.bin", test::read_file(path));
  test::expect_error([&] { Tokenizer::load(model); }, {"model.bin", "tok512.bin"});
  test::expect_error([&] { Tokenizer::load(directory.path()); }, {"tokenizer.json", "tok*.bin"});
  test::expect_error([&] { Tokenizer::load(directory.file("none")); }, {"none", "does not exist"});
  const std::string bytes = test::read_file(test::shared_data("models/stories260K/tok512.bin"));
  directory.write("tokenizer.bin", bytes.substr(0, 16 + 15));  // fewer pieces than the model
  test::expect_error([&] { Tokenizer::load(model); }, {"tokenizer.bin"});
  directory.write("tok512.bin", bytes);
  EXPECT_EQ(Tokenizer::load(model)->size(), 512);
}

TEST(JsonTokenizer, UnigramPieces) {
  const auto tokenizer = load_json(test::unigram_json());
  // "▁hel" (-6) beats "▁" "h" "e" "l" (-11.5); the map and the case make "HELLO" the same.
  EXPECT_EQ(tokenizer->encode("hello", true), (Ids{8, 7, 1}));
  EXPECT_EQ(tokenizer->encode("HELLO ", false), (Ids{8, 7}));
  // A run of unknown characters is one token; "▁▁" of two spaces is cut before each sign.
  EXPECT_EQ(tokenizer->encode("xyz  w\u0301A", false), (Ids{2, 0, 9, 3}));
  EXPECT_EQ(tokenizer->decode(Ids{2, 8, 7, 9}), " hello w");
  EXPECT_EQ(tokenizer->decode(Ids{8, 7, 1}), "hello");
  EXPECT_EQ(tokenizer->encode("", true), (Ids{1}));
}

}  // namespace
}  // namespace halftone

// Makes small tokenizer.json files for tests.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "engine/tokenizer/unicode.h"
#include "engine_files/tiny_sentencepiece.h"

namespace halftone::test {

// JSON text of a string: quotes and backslashes escaped.
inline std::string json_quote(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

// The symbol of a byte in byte-level vocabularies, written from the definition.
inline std::string byte_symbol(int byte) {
  std::vector<int> printable;
  for (int b = '!'; b <= '~'; ++b) printable.push_back(b);
  for (int b = 0xa1; b <= 0xff; ++b) {
    if (b != 0xad) printable.push_back(b);
  }
  std::string result;
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    bool itself = false;
    for (const int p : printable) itself = itself || p == b;
    const int symbol = itself ? b : next++;
    if (b == byte) append_utf8(result, symbol);
  }
  return result;
}

struct TinyTokenizer {
  std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"Ġ", "w"}, {"Ġw", "o"}, {"1", "2"}};
  std::string normalizer = "null";
  std::string pre_tokenizer =
      R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";
  std::string post_processor = "null";
  std::string added_tokens;  // items of the array
  std::string model_extra;   // members of the model, with a comma before each
  std::vector<std::string> extra_vocabulary;

  // Bytes are tokens 0 to 255, merged symbols follow in order.
  std::string json() const {
    std::string vocabulary, list;
    int next = 0;
    const auto add = [&](const std::string& token) {
      vocabulary += (next == 0 ? "" : ", ") + json_quote(token) + ": " + std::to_string(next);
      ++next;
    };
    for (int b = 0; b < 256; ++b) add(byte_symbol(b));
    for (const auto& [left, right] : merges) {
      add(left + right);
      list += (list.empty() ? "" : ", ") + json_quote(left + " " + right);
    }
    for (const std::string& token : extra_vocabulary) add(token);
    return R"({"version": "1.0", "added_tokens": [)" + added_tokens + R"(], "normalizer": )" +
           normalizer + R"(, "pre_tokenizer": )" + pre_tokenizer + R"(, "post_processor": )" +
           post_processor + R"(, "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE")" +
           model_extra + R"(, "vocab": {)" + vocabulary + R"(}, "merges": [)" + list + "]}}";
  }
};

// An item of added_tokens.
inline std::string added_token(int id, const std::string& content, bool special,
                               const std::string& extra = "") {
  return "{\"id\": " + std::to_string(id) + ", \"content\": " + json_quote(content) +
         ", \"special\": " + (special ? "true" : "false") + extra + "}";
}

// A tokenizer.json as Llama 2 has it: characters, bytes as a fallback, a sign for the space.
// 0 <unk>, 1 <s>, 2 </s>, 3 to 258 the bytes, then "▁", "a", "b", "ab", "▁ab".
inline std::string byte_fallback_json(
    const std::string& normalizer =
        R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})",
    const std::string& pre_tokenizer = "null", const std::string& model_extra = "") {
  std::string vocabulary = R"("<unk>": 0, "<s>": 1, "</s>": 2)";
  int next = 3;
  for (int b = 0; b < 256; ++b) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    vocabulary += ", \"<0x";
    vocabulary += kDigits[b / 16];
    vocabulary += kDigits[b % 16];
    vocabulary += ">\": " + std::to_string(next++);
  }
  for (const char* piece : {"▁", "a", "b", "ab", "▁ab"}) {
    vocabulary += ", \"" + std::string(piece) + "\": " + std::to_string(next++);
  }
  return R"({"added_tokens": [)" + added_token(1, "<s>", true) + ", " +
         added_token(2, "</s>", true) + R"(], "normalizer": )" + normalizer +
         R"(, "pre_tokenizer": )" + pre_tokenizer +
         R"(, "post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                "special_tokens": {"<s>": {"ids": [1]}}},
             "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
             "model": {"type": "BPE", "byte_fallback": true, "fuse_unk": true,
                       "unk_token": "<unk>")" +
         model_extra + R"(, "vocab": {)" + vocabulary + R"(}, "merges": ["a b", "▁ ab"]}})";
}

// A tokenizer.json with Unigram pieces, as T5 has it; the map makes "A" an "a".
inline std::string unigram_json() {
  return R"({"added_tokens": [)" + added_token(0, "<unk>", true) + ", " +
         added_token(1, "<s>", true) + R"(],
      "normalizer": {"type": "Sequence", "normalizers": [
         {"type": "Precompiled", "precompiled_charsmap": ")" +
         base64(tiny_charsmap()) + R"("},
         {"type": "Nmt"}, {"type": "Lowercase"}, {"type": "StripAccents"},
         {"type": "Strip", "strip_left": false, "strip_right": true},
         {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]},
      "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
      "post_processor": {"type": "TemplateProcessing", "single": [
         {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<s>"}}],
         "special_tokens": {"<s>": {"ids": [1]}}},
      "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
      "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["<s>", 0], ["▁", -2],
         ["a", -2.5], ["h", -3.0], ["e", -3.5], ["l", -3], ["lo", -3], ["▁hel", -6], ["▁w", -4]]}})";
}

// A Split by a regular expression with ByteLevel behind it, as Llama 3 and Qwen write it.
inline std::string split_pre_tokenizer(const std::string& regex) {
  return R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": )" +
         json_quote(regex) + R"(}, "behavior": "Isolated", "invert": false},)" +
         R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
}

}  // namespace halftone::test

#include "engine/tokenizer/llama2c_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include "engine/checkpoint/mapped_file.h"
#include "engine/json.h"
#include "engine/tokenizer/bpe.h"
#include "engine/tokenizer/unicode.h"

namespace halftone {

namespace {

constexpr int32_t kBos = 1;
constexpr int32_t kSpecial = 3;          // 0 unknown, 1 bos, 2 eos
constexpr int32_t kLongestPiece = 1024;  // known vocabularies stay below 30
constexpr size_t kMaxPieces = size_t{1} << 21;

struct Entry {
  float score;
  std::string text;
};

std::vector<Entry> read_entries(const MappedFile& file) {
  const auto malformed = [&](const auto&... parts) {
    fail(ErrorCode::malformed_file, file.path(), ": ", parts...);
  };
  size_t at = 0;
  const auto take = [&](void* value, size_t bytes, const char* what, size_t entry) {
    if (bytes > file.size() - at) {
      malformed("the file ends at byte ", file.size(), " inside the ", what, " of piece ", entry);
    }
    std::memcpy(value, file.data() + at, bytes);
    at += bytes;
  };
  int32_t longest = 0;
  if (file.size() < sizeof longest) {
    malformed("the file has ", file.size(), " bytes; a llama2.c tokenizer has at least 4");
  }
  take(&longest, sizeof longest, "max_token_length", 0);
  if (longest < 1 || longest > kLongestPiece) {
    malformed("max_token_length is ", longest, "; it must be from 1 to ", kLongestPiece);
  }
  std::vector<Entry> entries;
  while (at < file.size()) {
    const size_t index = entries.size();
    if (index == kMaxPieces) malformed("more than ", kMaxPieces, " pieces");
    Entry entry{};
    int32_t length = 0;
    take(&entry.score, sizeof entry.score, "score", index);
    if (!std::isfinite(entry.score)) malformed("the score of piece ", index, " is not finite");
    take(&length, sizeof length, "length", index);
    if (length < 0 || length > kLongestPiece) {
      malformed("the length of piece ", index, " is ", length, "; it must be from 0 to ",
                kLongestPiece);
    }
    entry.text.resize(static_cast<size_t>(length));
    take(entry.text.data(), entry.text.size(), "text", index);
    entries.push_back(std::move(entry));
  }
  if (entries.size() < static_cast<size_t>(kSpecial)) {
    malformed(entries.size(), " pieces; at least 3 (unknown, bos, eos) are needed");
  }
  return entries;
}

class Llama2cTokenizer : public Tokenizer {
 public:
  explicit Llama2cTokenizer(const std::string& path)
      : path_(path), entries_(read_entries(*MappedFile::open(path))) {
    std::fill(std::begin(byte_token_), std::end(byte_token_), -1);
    for (size_t i = 0; i < entries_.size(); ++i) {
      tokens_.emplace(entries_[i].text, static_cast<int32_t>(i));
      const int byte = byte_of_piece(entries_[i].text);
      if (byte >= 0 && byte_token_[byte] < 0) byte_token_[byte] = static_cast<int32_t>(i);
    }
    build_merges();
  }

  std::vector<int32_t> encode(std::string_view text, bool special) const override;
  std::string decode(std::span<const int32_t> tokens, bool skip_special) const override;
  std::string piece(int32_t token, int32_t previous) const override {
    return text_of(token, previous, true);
  }
  int64_t size() const override { return static_cast<int64_t>(entries_.size()); }

 private:
  void build_merges();
  void push_character(std::string_view character, std::vector<int32_t>& symbols) const;
  std::string text_of(int32_t token, int32_t previous, bool skip_special) const;

  std::string path_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, int32_t> tokens_;  // the first of equal pieces
  int32_t byte_token_[256];
  MergeTable merges_;
};

// Any two pieces that together spell a piece may join; the rank is the order of the scores, equal
// scores sharing one so that the leftmost goes first.
void Llama2cTokenizer::build_merges() {
  std::vector<size_t> order(entries_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return entries_[a].score > entries_[b].score; });
  int32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Entry& entry = entries_[order[i]];
    if (i > 0 && entry.score < entries_[order[i - 1]].score) ++rank;
    const auto result = static_cast<int32_t>(order[i]);
    if (tokens_.at(entry.text) != result) continue;  // a double
    for (size_t cut = 1; cut < entry.text.size(); ++cut) {
      const auto left = tokens_.find(entry.text.substr(0, cut));
      if (left == tokens_.end()) continue;
      const auto right = tokens_.find(entry.text.substr(cut));
      if (right != tokens_.end()) merges_.insert(left->second, right->second, {rank, result});
    }
  }
}

void Llama2cTokenizer::push_character(std::string_view character,
                                      std::vector<int32_t>& symbols) const {
  const auto known = tokens_.find(std::string(character));
  if (known != tokens_.end()) {
    symbols.push_back(known->second);
    return;
  }
  for (const char c : character) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte_token_[byte] < 0) {
      fail(ErrorCode::invalid_argument, "the text holds the byte ", int{byte}, ", for which ",
           path_, " has no piece");
    }
    symbols.push_back(byte_token_[byte]);
  }
}

std::vector<int32_t> Llama2cTokenizer::encode(std::string_view text, bool special) const {
  std::vector<int32_t> symbols;
  if (special) symbols.push_back(kBos);
  if (text.empty()) return symbols;
  std::vector<int32_t> words;
  push_character(" ", words);  // the space that begins every text of these vocabularies
  for (size_t i = 0; i < text.size();) {
    // A character here is a byte and up to three continuation bytes, right or wrong.
    size_t end = i + 1;
    while (end < text.size() && end - i < 4 &&
           (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
      ++end;
    }
    push_character(text.substr(i, end - i), words);
    i = end;
  }
  merge_pairs(words, merges_);
  symbols.insert(symbols.end(), words.begin(), words.end());
  return symbols;
}

std::string Llama2cTokenizer::text_of(int32_t token, int32_t previous, bool skip_special) const {
  if (token < 0 || token >= size()) {
    fail(ErrorCode::invalid_argument, "token ", token, " is outside the vocabulary of ", size());
  }
  if (token < kSpecial && skip_special) return "";
  const std::string& text = entries_[static_cast<size_t>(token)].text;
  if (const int byte = byte_of_piece(text); byte >= 0)
    return std::string(1, static_cast<char>(byte));
  const bool prefix_space = previous == kBos && !text.empty() && text[0] == ' ';
  return prefix_space ? text.substr(1) : text;
}

std::string Llama2cTokenizer::decode(std::span<const int32_t> tokens, bool skip_special) const {
  std::string bytes;
  int32_t previous = -1;
  for (const int32_t token : tokens) {
    bytes += text_of(token, previous, skip_special);
    previous = token;
  }
  return valid_utf8(bytes);
}

}  // namespace

std::unique_ptr<Tokenizer> load_llama2c_tokenizer(const std::string& path) {
  return std::make_unique<Llama2cTokenizer>(path);
}

std::optional<int64_t> probe_llama2c_tokenizer(const std::string& path) {
  try {
    return static_cast<int64_t>(read_entries(*MappedFile::open(path)).size());
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace halftone

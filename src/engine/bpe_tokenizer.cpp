#include "engine/bpe_tokenizer.h"

#include <algorithm>

namespace halftone {

namespace {
constexpr size_t kLongestCachedWord = 64;
constexpr size_t kCachedWords = size_t{1} << 16;
}  // namespace

struct BpeTokenizer::Words {
  std::unordered_map<std::string, std::pair<size_t, size_t>> ranges;  // of `tokens`
  std::vector<int32_t> tokens;
  std::vector<int32_t> symbols;  // scratch
};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  size_t found = text.find(from);
  if (found == std::string::npos) return;
  std::string result;
  size_t at = 0;
  for (; found != std::string::npos; found = text.find(from, at)) {
    result.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  text = result.append(text, at);
}

std::string BpeTokenizer::normalized(std::string_view text) const {
  std::string result(text);
  for (const NormalizeStep& step : normalizers_) {
    switch (step.kind) {
      case NormalizeStep::Kind::form:
        result = normalize(result, step.form);
        break;
      case NormalizeStep::Kind::prepend:
        if (!result.empty()) result.insert(0, step.to);
        break;
      case NormalizeStep::Kind::replace:
        replace_all(result, step.from, step.to);
    }
    // A text grows a few times at most; steps that make it explode come from no real tokenizer.
    if (result.size() > 100 * text.size() + 100) {
      fail(ErrorCode::malformed_file, file_, ": the normalizer makes ", result.size(), " bytes of ",
           text.size());
    }
  }
  return result;
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text, bool special) const {
  std::vector<int32_t> out;
  if (special) out = before_;
  Words words;
  std::vector<AddedTokenMatcher::Part> parts, inner;
  raw_tokens_.split(text, special, parts);
  for (const AddedTokenMatcher::Part& part : parts) {
    if (part.id >= 0) {
      out.push_back(part.id);
      continue;
    }
    const bool as_is = normalizers_.empty();
    const std::string changed = as_is ? std::string() : normalized(part.text);
    inner.clear();
    normalized_tokens_.split(as_is ? part.text : std::string_view(changed), special, inner);
    for (const AddedTokenMatcher::Part& stretch : inner) {
      if (stretch.id >= 0) {
        out.push_back(stretch.id);
      } else {
        const bool first = part.text.data() == text.data() && &stretch == inner.data();
        encode_stretch(stretch.text, first, words, out);
      }
    }
  }
  if (special) out.insert(out.end(), behind_.begin(), behind_.end());
  return out;
}

void BpeTokenizer::encode_stretch(std::string_view text, bool first, Words& words,
                                  std::vector<int32_t>& out) const {
  std::string prefixed;
  if (!space_sign_.empty()) {
    prefixed = text;
    replace_all(prefixed, " ", space_sign_);
    const bool prefix = prefix_ == Prefix::always || (prefix_ == Prefix::first && first);
    if (prefix && !prefixed.starts_with(space_sign_)) prefixed.insert(0, space_sign_);
    text = prefixed;
  }
  if (add_prefix_space_ && text.front() != ' ') {
    prefixed = concat(' ', text);
    text = prefixed;
  }
  std::vector<std::string_view> pieces = {text};
  for (const SplitStep& step : steps_) pieces = split(pieces, step);
  for (const std::string_view word : pieces) encode_word(word, words, out);
}

void BpeTokenizer::encode_word(std::string_view word, Words& words,
                               std::vector<int32_t>& out) const {
  const bool cached = word.size() <= kLongestCachedWord;
  std::string key;
  if (cached || ignore_merges_) key = word;
  if (cached) {
    const auto place = words.ranges.find(key);
    if (place != words.ranges.end()) {
      const auto [begin, end] = place->second;
      out.insert(out.end(), words.tokens.begin() + static_cast<ptrdiff_t>(begin),
                 words.tokens.begin() + static_cast<ptrdiff_t>(end));
      return;
    }
  }
  std::vector<int32_t>& symbols = words.symbols;
  symbols.clear();
  const auto whole = ignore_merges_ ? whole_words_.find(key) : whole_words_.end();
  if (whole != whole_words_.end()) {
    symbols.push_back(whole->second);
  } else {
    for (size_t i = 0; i < word.size();) {
      const auto length =
          byte_fallback_ ? static_cast<size_t>(decode_utf8(word, i).length) : size_t{1};
      push_character(word.substr(i, length), symbols);
      i += length;
    }
    merge_pairs(symbols, merges_);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
  if (cached && words.ranges.size() < kCachedWords) {
    const size_t begin = words.tokens.size();
    words.tokens.insert(words.tokens.end(), symbols.begin(), symbols.end());
    words.ranges.emplace(std::move(key), std::pair(begin, words.tokens.size()));
  }
}

void BpeTokenizer::push_character(std::string_view character, std::vector<int32_t>& symbols) const {
  if (byte_fallback_) {
    const auto known = characters_.find(std::string(character));
    if (known != characters_.end()) {
      symbols.push_back(known->second);
      return;
    }
  }
  const auto token = [&](char c) { return byte_token_[static_cast<unsigned char>(c)]; };
  const auto missing =
      std::find_if(character.begin(), character.end(), [&](char c) { return token(c) < 0; });
  if (missing == character.end()) {
    for (const char c : character) symbols.push_back(token(c));
    return;
  }
  if (unknown_ < 0) {
    fail(ErrorCode::invalid_argument, "the text holds the byte ",
         int{static_cast<unsigned char>(*missing)}, ", for which ", file_,
         " has no token and no unk_token");
  }
  const bool fused = fuse_unknown_ && !symbols.empty() && symbols.back() == unknown_;
  if (!fused) symbols.push_back(unknown_);
}

const BpeTokenizer::Piece& BpeTokenizer::at(int32_t token) const {
  if (token < 0 || token >= size()) {
    fail(ErrorCode::invalid_argument, "token ", token, " is outside the vocabulary of ", size());
  }
  return pieces_[static_cast<size_t>(token)];
}

std::string BpeTokenizer::piece(int32_t token, int32_t previous) const {
  const Piece& piece = at(token);
  if (piece.special) return "";
  const bool strip = strip_start_ && previous >= 0 && at(previous).special;
  return strip && piece.bytes.starts_with(' ') ? piece.bytes.substr(1) : piece.bytes;
}

std::string BpeTokenizer::decode(std::span<const int32_t> tokens, bool skip_special) const {
  std::string bytes;
  for (const int32_t token : tokens) {
    const Piece& piece = at(token);
    if (!piece.special || !skip_special) bytes += piece.bytes;
  }
  if (strip_start_ && bytes.starts_with(' ')) bytes.erase(0, 1);
  return valid_utf8(bytes);
}

}  // namespace halftone

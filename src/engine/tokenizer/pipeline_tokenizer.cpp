#include "engine/tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <deque>
#include <optional>

namespace halftone {

namespace {
constexpr size_t kLongestCachedWord = 64;
constexpr size_t kCachedWords = size_t{1} << 16;
}  // namespace

struct PipelineTokenizer::Words {
  std::unordered_map<std::string, std::pair<size_t, size_t>> ranges;  // of `tokens`
  std::vector<int32_t> tokens;
  std::vector<int32_t> symbols;  // scratch
};

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text, bool special) const {
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
    const bool as_is = normalizer_.empty();
    const std::string changed = as_is ? std::string() : normalizer_(part.text);
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

void PipelineTokenizer::encode_stretch(std::string_view text, bool first, Words& words,
                                       std::vector<int32_t>& out) const {
  std::string prefixed;
  if (add_prefix_space_ && text.front() != ' ') {
    prefixed = concat(' ', text);
    text = prefixed;
  }
  std::vector<std::string_view> pieces = {text};
  std::deque<std::string> signed_pieces;  // what Metaspace made; `pieces` points there
  for (const PreTokenizeStep& step : steps_) {
    if (!step.space_sign.empty()) {
      using Prefix = PreTokenizeStep::Prefix;
      for (std::string_view& piece : pieces) {
        const bool begins = first && piece.data() == text.data();
        const bool prefix =
            step.prefix == Prefix::always || (step.prefix == Prefix::first && begins);
        std::string& made = signed_pieces.emplace_back(piece);
        replace_all(made, " ", step.space_sign);
        if (prefix && !made.starts_with(step.space_sign)) made.insert(0, step.space_sign);
        piece = made;
      }
    }
    if (step.split.pattern != nullptr) pieces = split(pieces, step.split);
  }
  for (const std::string_view word : pieces) encode_word(word, words, out);
}

void PipelineTokenizer::encode_word(std::string_view word, Words& words,
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
  } else if (unigram_ != nullptr) {
    encode_unigram(word, symbols);
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

void PipelineTokenizer::encode_unigram(std::string_view word, std::vector<int32_t>& symbols) const {
  const auto score = [&](int32_t token, size_t) -> std::optional<double> {
    return unigram_->scores[static_cast<size_t>(token)];
  };
  const std::vector<Segment> segments =
      likeliest_segments<double>(word, unigram_->pieces, score, unknown_, unigram_->unknown_score);
  for (size_t i = 0; i < segments.size();) {
    const Segment& segment = segments[i++];
    if (segment.id != unknown_) {
      symbols.push_back(segment.id);
      continue;
    }
    // A run of unknown characters is one token, or its bytes.
    size_t end = segment.begin + segment.length;
    for (; i < segments.size() && segments[i].id == unknown_; ++i) end += segments[i].length;
    const std::string_view run = word.substr(segment.begin, end - segment.begin);
    const int32_t known = unigram_->pieces.find(run);
    if (known >= 0) {
      symbols.push_back(known);
    } else {
      push_character(run, symbols);
    }
  }
}

void PipelineTokenizer::push_character(std::string_view character,
                                       std::vector<int32_t>& symbols) const {
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

const PipelineTokenizer::Piece& PipelineTokenizer::at(int32_t token) const {
  if (token < 0 || token >= size()) {
    fail(ErrorCode::invalid_argument, "token ", token, " is outside the vocabulary of ", size());
  }
  return pieces_[static_cast<size_t>(token)];
}

std::string PipelineTokenizer::piece(int32_t token, int32_t previous) const {
  const Piece& piece = at(token);
  if (piece.special) return "";
  const bool first = previous >= 0 && at(previous).special;
  return piece.bytes.substr(first ? stripped(piece.bytes) : 0);
}

size_t PipelineTokenizer::stripped(std::string_view first) const {
  if (strip_start_ == Strip::none) return 0;
  const size_t spaces = std::min(first.find_first_not_of(' '), first.size());
  return strip_start_ == Strip::one ? std::min<size_t>(spaces, 1) : spaces;
}

std::string PipelineTokenizer::decode(std::span<const int32_t> tokens, bool skip_special) const {
  std::string bytes;
  bool first = true;
  for (const int32_t token : tokens) {
    const Piece& piece = at(token);
    if (piece.special && skip_special) continue;
    bytes.append(piece.bytes, first ? stripped(piece.bytes) : 0);
    first = false;
  }
  return valid_utf8(bytes);
}

}  // namespace halftone

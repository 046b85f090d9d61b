#include "engine/tokenizer/added_tokens.h"

#include "engine/tokenizer/unicode.h"

namespace halftone {

void AddedTokenMatcher::add(const AddedToken& token) {
  if (token.content.empty()) return;  // would match everywhere
  uint32_t node = 0;
  for (const char c : token.content) {
    const uint64_t key = uint64_t{node} << 8 | static_cast<unsigned char>(c);
    const auto [place, added] = edges_.emplace(key, static_cast<uint32_t>(token_at_.size()));
    if (added) token_at_.push_back(-1);
    node = place->second;
  }
  first_byte_[static_cast<unsigned char>(token.content[0])] = true;
  if (token_at_[node] < 0) token_at_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

const AddedToken* AddedTokenMatcher::longest(std::string_view text, size_t at) const {
  if (!first_byte_[static_cast<unsigned char>(text[at])]) return nullptr;
  const AddedToken* best = nullptr;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (token_at_[node] < 0) continue;
    best = &tokens_[static_cast<size_t>(token_at_[node])];
  }
  return best;
}

namespace {

// Begin of the character that ends at `end` > 0.
size_t previous_character(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) {
    --begin;
  }
  return begin;
}

bool is_white(int32_t codepoint) {
  const CharClass kind = char_class(codepoint);
  return kind == CharClass::space || kind == CharClass::newline;
}

}  // namespace

void AddedTokenMatcher::split(std::string_view text, bool special, std::vector<Part>& parts) const {
  size_t reached = 0;
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    const AddedToken* token = longest(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->special && !special) continue;
    if (token->single_word) {
      const bool word_before =
          begin > 0 && is_word(decode_utf8(text, previous_character(text, begin)).codepoint);
      const bool word_behind = end < text.size() && is_word(decode_utf8(text, end).codepoint);
      if (word_before || word_behind) continue;
    }
    while (token->lstrip && begin > reached) {
      const size_t previous = previous_character(text, begin);
      if (previous < reached || !is_white(decode_utf8(text, previous).codepoint)) break;
      begin = previous;
    }
    while (token->rstrip && end < text.size()) {
      const Utf8Step step = decode_utf8(text, end);
      if (!is_white(step.codepoint)) break;
      end += static_cast<size_t>(step.length);
    }
    if (begin > reached) parts.push_back({-1, text.substr(reached, begin - reached)});
    parts.push_back({token->id, text.substr(begin, end - begin)});
    at = reached = end;
  }
  if (reached < text.size()) parts.push_back({-1, text.substr(reached)});
}

}  // namespace halftone

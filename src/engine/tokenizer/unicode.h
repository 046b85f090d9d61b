// UTF-8, the character classes of tokenizer patterns, and normal forms.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace halftone {

// One step through bytes that need not be valid UTF-8.
struct Utf8Step {
  int32_t codepoint;  // kInvalid or kCut when there is none
  int length;         // bytes to advance, >= 1
};
inline constexpr int32_t kInvalid = -1;  // not UTF-8: the longest well-formed beginning, or a byte
inline constexpr int32_t kCut = -2;      // a sequence that is right so far but ends with the text
// `at` < text.size().
Utf8Step decode_utf8(std::string_view text, size_t at);

void append_utf8(std::string& out, int32_t codepoint);
// Each invalid part becomes U+FFFD, as the Unicode standard recommends.
std::string valid_utf8(std::string_view bytes);

// What the patterns of tokenizers tell apart.
enum class CharClass : uint8_t {
  letter,   // \p{L}
  number,   // \p{N}
  space,    // \s but not a newline
  newline,  // \r or \n
  other,    // also bytes that are no UTF-8
};
CharClass char_class(int32_t codepoint);
// \w: letters, marks, decimal and letter-like numbers, connector punctuation, joiners.
bool is_word(int32_t codepoint);

bool is_mark(int32_t codepoint);  // \p{M}

// Character by character, without rules of context. Invalid bytes are kept as they are.
std::string lowercase(std::string_view text);
// Calls visit(bytes) for each extended grapheme cluster: what a reader takes for one character.
// Each invalid part is a cluster of its own.
void each_grapheme(std::string_view text, const std::function<void(std::string_view)>& visit);

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };
// Invalid bytes are kept as they are.
std::string normalize(std::string_view text, NormalForm form);

}  // namespace halftone

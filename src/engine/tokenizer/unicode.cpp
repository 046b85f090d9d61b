#include "engine/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/message.h"
#include "halftone/engine.h"

namespace halftone {

Utf8Step decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return {static_cast<int32_t>(lead), 1};
  // Bounds of the second byte exclude overlong forms, surrogates and numbers above U+10FFFF.
  int more;
  unsigned low = 0x80, high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    more = 1;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    more = 2;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    more = 3;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return {kInvalid, 1};
  }
  auto codepoint = static_cast<int32_t>(lead & (0x3fu >> more));
  for (int i = 1; i <= more; ++i) {
    if (at + static_cast<size_t>(i) >= text.size()) return {kCut, i};
    const unsigned next = byte(at + static_cast<size_t>(i));
    if (next < low || next > high) return {kInvalid, i};
    codepoint = codepoint << 6 | static_cast<int32_t>(next & 0x3f);
    low = 0x80, high = 0xbf;
  }
  return {codepoint, more + 1};
}

void append_utf8(std::string& out, int32_t codepoint) {
  const auto c = static_cast<uint32_t>(codepoint);
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6), put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 0x3f)), put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

std::string valid_utf8(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Step step = decode_utf8(bytes, i);
    if (step.codepoint < 0) {
      result += "\xef\xbf\xbd";
    } else {
      result.append(bytes.substr(i, static_cast<size_t>(step.length)));
    }
    i += static_cast<size_t>(step.length);
  }
  return result;
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  // Only the last three bytes can belong to a sequence that is not complete.
  size_t complete = pending_.size();
  for (size_t back = 1; back <= 3 && back <= pending_.size(); ++back) {
    const size_t at = pending_.size() - back;
    if ((static_cast<unsigned char>(pending_[at]) & 0xc0) == 0x80) continue;
    const Utf8Step step = decode_utf8(pending_, at);
    if (step.codepoint == kCut) complete = at;
    break;
  }
  std::string result = valid_utf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return result;
}

std::string Utf8Stream::flush() {
  std::string result = valid_utf8(pending_);
  pending_.clear();
  return result;
}

namespace {

CharClass classify(int32_t c) {
  if (c == '\r' || c == '\n') return CharClass::newline;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::number;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return CharClass::space;
    default:
      return (c >= '\t' && c <= '\r') || c == 0x85 ? CharClass::space : CharClass::other;
  }
}

constexpr int kTableSize = 0x250;  // Latin: most text never leaves the table

}  // namespace

CharClass char_class(int32_t codepoint) {
  static const auto table = [] {
    std::array<CharClass, kTableSize> classes;
    for (int32_t c = 0; c < kTableSize; ++c) classes[static_cast<size_t>(c)] = classify(c);
    return classes;
  }();
  if (codepoint < 0) return CharClass::other;
  return codepoint < kTableSize ? table[static_cast<size_t>(codepoint)] : classify(codepoint);
}

bool is_word(int32_t codepoint) {
  if (codepoint < 0) return false;
  if (codepoint == 0x200c || codepoint == 0x200d) return true;  // joiners inside words
  switch (utf8proc_category(codepoint)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return is_mark(codepoint) || char_class(codepoint) == CharClass::letter;
  }
}

bool is_mark(int32_t codepoint) {
  if (codepoint < 0) return false;
  const utf8proc_category_t category = utf8proc_category(codepoint);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

std::string lowercase(std::string_view text) {
  constexpr int32_t kDottedI = 0x130;  // the only letter that becomes two
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    if (step.codepoint < 0) {
      result.append(text, i, static_cast<size_t>(step.length));
    } else if (step.codepoint == kDottedI) {
      result += "i\u0307";
    } else {
      append_utf8(result, utf8proc_tolower(step.codepoint));
    }
    i += static_cast<size_t>(step.length);
  }
  return result;
}

void each_grapheme(std::string_view text, const std::function<void(std::string_view)>& visit) {
  size_t begin = 0;
  int32_t previous = kInvalid, state = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    const bool cut = previous < 0 || step.codepoint < 0 ||
                     utf8proc_grapheme_break_stateful(previous, step.codepoint, &state);
    if (cut && i > begin) {
      visit(text.substr(begin, i - begin));
      begin = i;
    }
    if (step.codepoint < 0) state = 0;
    previous = step.codepoint;
    i += static_cast<size_t>(step.length);
  }
  if (begin < text.size()) visit(text.substr(begin));
}

namespace {

void normalize_valid(std::string& out, std::string_view text, NormalForm form) {
  if (text.empty()) return;
  int options = UTF8PROC_STABLE;
  const bool composed = form == NormalForm::nfc || form == NormalForm::nfkc;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &mapped, static_cast<utf8proc_option_t>(options));
  if (length < 0) {
    fail(ErrorCode::out_of_memory, "normalising ", text.size(),
         " bytes of text: ", utf8proc_errmsg(length));
  }
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
  std::free(mapped);
}

}  // namespace

std::string normalize(std::string_view text, NormalForm form) {
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), ascii)) return std::string(text);
  std::string result;
  size_t begin = 0;  // of the valid stretch that ends at i
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    const auto length = static_cast<size_t>(step.length);
    if (step.codepoint < 0) {
      normalize_valid(result, text.substr(begin, i - begin), form);
      result.append(text.substr(i, length));
      begin = i + length;
    }
    i += length;
  }
  normalize_valid(result, text.substr(begin), form);
  return result;
}

}  // namespace halftone

// What templates do with texts: by characters, with Python's notion of white space.
#include <algorithm>

#include <utf8proc.h>

#include "engine/jinja/interpreter.h"
#include "engine/tokenizer/unicode.h"

namespace halftone::jinja {

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto length = static_cast<size_t>(decode_utf8(text, i).length);
    result.push_back(text.substr(i, length));
    i += length;
  }
  return result;
}

std::string change_case(std::string_view text, Case to) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    const auto length = static_cast<size_t>(step.length);
    if (step.codepoint < 0) {
      result.append(text.substr(i, length));
    } else if (step.codepoint == 0xdf && to == Case::upper) {
      result += "SS";  // the one letter of many texts that becomes two
    } else {
      append_utf8(result, to == Case::upper ? utf8proc_toupper(step.codepoint)
                                            : utf8proc_tolower(step.codepoint));
    }
    i += length;
  }
  return result;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return "";
  const auto first = static_cast<size_t>(decode_utf8(text, 0).length);
  return change_case(text.substr(0, first), Case::upper) +
         change_case(text.substr(first), Case::lower);
}

std::string_view stripped(std::string_view text, const std::string* drop, bool left, bool right) {
  std::vector<std::string_view> dropped;
  if (drop != nullptr) dropped = characters(*drop);
  const auto goes = [&](std::string_view c) {
    if (drop != nullptr) return std::find(dropped.begin(), dropped.end(), c) != dropped.end();
    const int32_t code = decode_utf8(c, 0).codepoint;
    const CharClass kind = char_class(code);
    return kind == CharClass::space || kind == CharClass::newline || (code >= 0x1c && code <= 0x1f);
  };
  while (left && !text.empty()) {
    const auto length = static_cast<size_t>(decode_utf8(text, 0).length);
    if (!goes(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 &&
           (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) {
      --begin;
    }
    if (!goes(text.substr(begin))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

std::string replaced(Interpreter& in, const std::string& text, const std::string& from,
                     const std::string& to, int64_t most) {
  std::string result;
  const auto grow = [&](std::string_view part) {
    in.spend_bytes(part.size());
    result += part;
  };
  size_t at = 0;
  if (from.empty()) {  // between all characters, and at both ends
    for (const std::string_view c : characters(text)) {
      if (most != 0) grow(to), --most;
      grow(c);
    }
    if (most != 0) grow(to);
    return result;
  }
  for (; most != 0; --most) {
    const size_t found = text.find(from, at);
    if (found == std::string::npos) break;
    grow(std::string_view(text).substr(at, found - at));
    grow(to);
    at = found + from.size();
  }
  grow(std::string_view(text).substr(at));
  return result;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    const int32_t c = step.codepoint;
    const bool ends = (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    size_t next = i + static_cast<size_t>(step.length);
    if (ends) {
      if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep_ends ? next : i) - begin));
      begin = next;
    }
    i = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace halftone::jinja

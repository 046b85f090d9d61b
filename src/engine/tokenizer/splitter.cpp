#include "engine/tokenizer/splitter.h"

#include "engine/json.h"
#include "engine/tokenizer/unicode.h"

namespace halftone {

const char* const kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwenRegex = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                               R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

// A text with the class of the character at a place.
struct Cursor {
  std::string_view text;

  CharClass at(size_t i, size_t& next) const {
    const Utf8Step step = decode_utf8(text, i);
    next = i + static_cast<size_t>(step.length);
    return char_class(step.codepoint);
  }
  // End of the run of characters that `belongs` accepts, at most `limit` of them.
  template <class Predicate>
  size_t run(size_t i, const Predicate& belongs, int limit = -1) const {
    for (size_t next; i < text.size() && limit != 0; i = next, --limit) {
      if (!belongs(at(i, next))) break;
    }
    return i;
  }
};

bool is_letter(CharClass c) { return c == CharClass::letter; }
bool is_number(CharClass c) { return c == CharClass::number; }
bool is_space(CharClass c) { return c == CharClass::space || c == CharClass::newline; }
bool is_other(CharClass c) { return c == CharClass::other; }

// 's 't 're 've 'm 'll 'd behind an apostrophe at `i`; the end, or `i` when there is none.
size_t contraction(std::string_view text, size_t i, bool any_case) {
  const auto letter = [&](size_t at) {
    const char c = at < text.size() ? text[at] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(i + 1), second = letter(i + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return i + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return i + 3;
  if (first == 'l' && second == 'l') return i + 3;
  // The long s (U+017F) is an s when the case does not count.
  if (any_case && text.substr(i + 1, 2) == "\xc5\xbf") return i + 3;
  return i;
}

// \s+(?!\S)|\s+ at a white-space character: the run without the last character, which goes with
// the word behind it, unless the text ends or the run is one character.
size_t white_space(const Cursor& cursor, size_t i) {
  size_t last = i, end = i;
  for (size_t next; end < cursor.text.size(); end = next) {
    if (!is_space(cursor.at(end, next))) return last > i ? last : end;
    last = end;
  }
  return end;
}

class Gpt2Pattern : public Pattern {
 public:
  std::vector<Match> matches(std::string_view text) const override {
    std::vector<Match> result;
    for (size_t i = 0; i < text.size();) {
      const size_t end = word(Cursor{text}, i);
      result.push_back({i, end});
      i = end;
    }
    return result;
  }

 private:
  static size_t word(const Cursor& cursor, size_t i) {
    const std::string_view text = cursor.text;
    if (text[i] == '\'') {
      if (const size_t end = contraction(text, i, false); end > i) return end;
    }
    const size_t start = text[i] == ' ' && i + 1 < text.size() ? i + 1 : i;
    size_t next;
    switch (cursor.at(start, next)) {
      case CharClass::letter:
        return cursor.run(next, is_letter);
      case CharClass::number:
        return cursor.run(next, is_number);
      case CharClass::other:
        return cursor.run(next, is_other);
      default:
        return white_space(cursor, i);
    }
  }
};

// The pattern of Llama 3 and Qwen, which differ in the digits of a number.
class Llama3Pattern : public Pattern {
 public:
  explicit Llama3Pattern(int digits) : digits_(digits) {}
  std::vector<Match> matches(std::string_view text) const override {
    std::vector<Match> result;
    for (size_t i = 0; i < text.size();) {
      const size_t end = word(Cursor{text}, i);
      result.push_back({i, end});
      i = end;
    }
    return result;
  }

 private:
  size_t word(const Cursor& cursor, size_t i) const {
    const std::string_view text = cursor.text;
    if (text[i] == '\'') {
      if (const size_t end = contraction(text, i, true); end > i) return end;
    }
    size_t next, behind;
    const CharClass first = cursor.at(i, next);
    if (first == CharClass::letter) return cursor.run(next, is_letter);
    if (first == CharClass::number) return cursor.run(next, is_number, digits_ - 1);
    if (first != CharClass::newline && next < text.size() && is_letter(cursor.at(next, behind))) {
      return cursor.run(behind, is_letter);
    }
    const size_t start = text[i] == ' ' ? i + 1 : i;
    const size_t symbols = cursor.run(start, is_other);
    if (symbols > start) {
      return cursor.run(symbols, [](CharClass c) { return c == CharClass::newline; });
    }
    // \s*[\r\n]+ ends behind the last newline of the white space.
    size_t newline_end = i;
    for (size_t at = i, after; at < text.size(); at = after) {
      const CharClass c = cursor.at(at, after);
      if (!is_space(c)) break;
      if (c == CharClass::newline) newline_end = after;
    }
    return newline_end > i ? newline_end : white_space(cursor, i);
  }

  int digits_;
};

class LiteralPattern : public Pattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}
  std::vector<Match> matches(std::string_view text) const override {
    std::vector<Match> result;
    if (literal_.empty()) return result;
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      result.push_back({at, at + literal_.size()});
    }
    return result;
  }

 private:
  std::string literal_;
};

}  // namespace

std::unique_ptr<Pattern> make_pattern(const std::string& regex, const std::string& where) {
  if (regex == kGpt2Regex) return std::make_unique<Gpt2Pattern>();
  if (regex == kLlama3Regex) return std::make_unique<Llama3Pattern>(3);
  if (regex == kQwenRegex) return std::make_unique<Llama3Pattern>(1);
  return make_pcre_pattern(regex, where);
}

std::unique_ptr<Pattern> make_literal_pattern(const std::string& literal) {
  return std::make_unique<LiteralPattern>(literal);
}

std::vector<std::string_view> split(const std::vector<std::string_view>& pieces,
                                    const SplitStep& step) {
  using Behavior = SplitStep::Behavior;
  std::vector<std::string_view> result;
  result.reserve(pieces.size());
  struct Segment {
    size_t begin, end;
    bool delimiter;
  };
  std::vector<Segment> segments;
  for (const std::string_view piece : pieces) {
    segments.clear();
    size_t reached = 0;
    for (const Pattern::Match& match : step.pattern->matches(piece)) {
      if (match.begin > reached) segments.push_back({reached, match.begin, step.invert});
      segments.push_back({match.begin, match.end, !step.invert});
      reached = match.end;
    }
    if (reached < piece.size()) segments.push_back({reached, piece.size(), step.invert});

    if (step.behavior == Behavior::merged_with_previous) {
      for (size_t i = 1; i < segments.size(); ++i) {
        if (!segments[i].delimiter || segments[i - 1].delimiter) continue;
        segments[i].begin = segments[i - 1].begin;
        segments[i - 1].end = segments[i - 1].begin;
      }
    } else if (step.behavior == Behavior::merged_with_next) {
      for (size_t i = segments.size(); i-- > 1;) {
        if (!segments[i - 1].delimiter || segments[i].delimiter) continue;
        segments[i - 1].end = segments[i].end;
        segments[i].begin = segments[i].end;
      }
    }
    for (const Segment& s : segments) {
      if (s.begin == s.end) continue;
      if (s.delimiter && step.behavior == Behavior::removed) continue;
      result.push_back(piece.substr(s.begin, s.end - s.begin));
    }
  }
  return result;
}

}  // namespace halftone

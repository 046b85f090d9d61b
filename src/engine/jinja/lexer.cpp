#include "engine/jinja/lexer.h"

#include <algorithm>

#include "base/message.h"
#include "engine/json.h"
#include "engine/tokenizer/unicode.h"

namespace halftone::jinja {

namespace {

using Kind = Token::Kind;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 0x80;
}

// One kind of newline, and none at the very end.
std::string unified(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      result += source[i];
    } else {
      result += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where)
      : where_(where), source_(unified(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const size_t tag = next_tag();
      if (tag == std::string_view::npos) {
        add_text(text_.substr(at_));
        break;
      }
      const std::string_view begin = text_.substr(tag, 2);
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      const size_t signs = sign == '-' || (sign == '+' && begin != "{{") ? 1 : 0;
      std::string_view before = text_.substr(at_, tag - at_);
      if (sign == '-') {
        while (!before.empty() && is_space(before.back())) before.remove_suffix(1);
      } else if (sign != '+' && begin != "{{") {
        before = without_indent(before);
      }
      const int line = line_ + newlines(text_.substr(at_, tag - at_));
      add_text(before);
      line_ = line;
      at_ = tag + 2 + signs;
      if (begin == "{#") {
        comment();
      } else if (begin == "{%" && raw_begins()) {
        raw();
      } else {
        inside(begin == "{%");
      }
    }
    tokens_.push_back({Kind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void malformed(const Parts&... parts) const {
    fail(ErrorCode::malformed_file, where_, ", line ", line_, ": ", parts...);
  }

  static int newlines(std::string_view text) {
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }

  size_t next_tag() const {
    for (size_t i = at_; i + 1 < text_.size(); ++i) {
      if (text_[i] == '{' && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#')) {
        return i;
      }
    }
    return std::string_view::npos;
  }

  // The white space between the last newline and a tag, where the line has nothing else.
  std::string_view without_indent(std::string_view before) const {
    const size_t newline = before.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !line_begins_) return before;
    const std::string_view indent = before.substr(begin);
    const bool blank = std::all_of(indent.begin(), indent.end(), is_space);
    return blank ? before.substr(0, begin) : before;
  }

  void add_text(std::string_view text) {
    if (!text.empty()) tokens_.push_back({Kind::text, std::string(text), line_});
  }

  void advance(size_t count) {
    line_ += newlines(text_.substr(at_, count));
    at_ += count;
  }

  // Behind a closing tag whose last sign was `sign`; `trims`: blocks and comments.
  void behind_tag(char sign, bool trims) {
    const size_t begin = at_;
    if (sign == '-') {
      size_t end = at_;
      while (end < text_.size() && is_space(text_[end])) ++end;
      advance(end - at_);
    } else if (trims && sign != '+' && at_ < text_.size() && text_[at_] == '\n') {
      advance(1);
    }
    line_begins_ = at_ > begin && text_[at_ - 1] == '\n';
  }

  void comment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) malformed("the comment has no end #}");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    advance(end + 2 - at_);
    behind_tag(sign, true);
  }

  static bool word_at(std::string_view text, size_t& at, std::string_view word) {
    size_t i = at;
    while (i < text.size() && is_space(text[i])) ++i;
    if (!text.substr(i).starts_with(word)) return false;
    at = i + word.size();
    return true;
  }

  // "raw" and the end of the tag: `at_` goes behind it.
  bool raw_begins() {
    size_t i = at_;
    if (!word_at(text_, i, "raw")) return false;
    while (i < text_.size() && is_space(text_[i])) ++i;
    const char sign = i < text_.size() && (text_[i] == '-' || text_[i] == '+') ? text_[i] : '\0';
    if (sign != '\0') ++i;
    if (!text_.substr(i).starts_with("%}")) return false;
    advance(i + 2 - at_);
    behind_tag(sign, false);  // this newline stays
    return true;
  }

  void raw() {
    for (size_t tag = text_.find("{%", at_); tag != std::string_view::npos;
         tag = text_.find("{%", tag + 2)) {
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      size_t i = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
      if (!word_at(text_, i, "endraw")) continue;
      while (i < text_.size() && is_space(text_[i])) ++i;
      const char last = i < text_.size() && (text_[i] == '-' || text_[i] == '+') ? text_[i] : '\0';
      if (last != '\0') ++i;
      if (!text_.substr(i).starts_with("%}")) continue;
      std::string_view body = text_.substr(at_, tag - at_);
      if (sign == '-') {
        while (!body.empty() && is_space(body.back())) body.remove_suffix(1);
      } else if (sign != '+') {
        body = without_indent(body);
      }
      add_text(body);
      advance(i + 2 - at_);
      behind_tag(last, true);
      return;
    }
    malformed("the block raw has no endraw");
  }

  // The tokens of one tag.
  void inside(bool block) {
    const int opened = line_;
    tokens_.push_back({block ? Kind::block_begin : Kind::print_begin, "", line_});
    std::string brackets;  // open ones: a closing tag inside them is none
    const std::string_view close = block ? "%}" : "}}";
    for (;;) {
      while (at_ < text_.size() && is_space(text_[at_])) advance(1);
      const std::string_view rest = text_.substr(at_);
      if (rest.empty()) {
        line_ = opened;
        malformed("the tag ", block ? "{%" : "{{", " has no end ", close);
      }
      if (brackets.empty()) {
        const char sign = rest[0] == '-' || (block && rest[0] == '+') ? rest[0] : '\0';
        const size_t signs = sign != '\0' ? 1 : 0;
        if (rest.substr(signs).starts_with(close)) {
          tokens_.push_back({block ? Kind::block_end : Kind::print_end, "", line_});
          advance(2 + signs);
          behind_tag(sign, block);
          return;
        }
      }
      if (begins_name(rest[0])) {
        name(rest);
      } else if (is_digit(rest[0])) {
        number(rest);
      } else if (rest[0] == '"' || rest[0] == '\'') {
        string(rest);
      } else {
        sign(rest, brackets);
      }
    }
  }

  void name(std::string_view rest) {
    size_t n = 1;
    while (n < rest.size() && (begins_name(rest[n]) || is_digit(rest[n]))) ++n;
    tokens_.push_back({Kind::name, std::string(rest.substr(0, n)), line_});
    at_ += n;
  }

  void number(std::string_view rest) {
    std::string digits;
    size_t n = 0;
    const auto run = [&] {
      for (; n < rest.size() && (is_digit(rest[n]) || rest[n] == '_'); ++n) {
        if (rest[n] != '_') digits += rest[n];
      }
    };
    run();
    bool real = false;
    if (n + 1 < rest.size() && rest[n] == '.' && is_digit(rest[n + 1])) {
      real = true;
      digits += rest[n++];
      run();
    }
    if (n < rest.size() && (rest[n] == 'e' || rest[n] == 'E')) {
      size_t m = n + 1;
      if (m < rest.size() && (rest[m] == '+' || rest[m] == '-')) ++m;
      if (m < rest.size() && is_digit(rest[m])) {
        real = true;
        digits.append(rest.substr(n, m - n));
        n = m;
        run();
      }
    }
    if (n < rest.size() && begins_name(rest[n])) {
      malformed("the number ", quote(rest.substr(0, n + 1)),
                " runs into a name; decimal numbers are known");
    }
    tokens_.push_back({real ? Kind::real : Kind::integer, std::move(digits), line_});
    at_ += n;
  }

  void string(std::string_view rest) {
    std::string value;
    for (size_t i = 1;; ++i) {
      if (i >= rest.size()) malformed("a string has no end");
      if (rest[i] == rest[0]) {
        tokens_.push_back({Kind::string, std::move(value), line_});
        advance(i + 1);
        return;
      }
      if (rest[i] != '\\') {
        value += rest[i];
      } else {
        escape(rest, ++i, value);
      }
    }
  }

  // At the character behind the backslash; `i` stays at the last one used.
  void escape(std::string_view rest, size_t& i, std::string& value) const {
    if (i >= rest.size()) malformed("a string has no end");
    constexpr std::string_view kLetters = "nrtbfav\\'\"0", kMeaning("\n\r\t\b\f\a\v\\'\"\0", 11);
    const size_t known = kLetters.find(rest[i]);
    if (known != std::string_view::npos) {
      value += kMeaning[known];
    } else if (rest[i] == 'x' || rest[i] == 'u' || rest[i] == 'U') {
      const size_t digits = rest[i] == 'x' ? 2 : rest[i] == 'u' ? 4 : 8;
      uint32_t code = 0;
      for (size_t n = 1; n <= digits; ++n) {
        const char c = i + n < rest.size() ? rest[i + n] : '\0';
        const int digit = is_digit(c)            ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) malformed("the escape \\", rest[i], " needs ", digits, " hex digits");
        code = code << 4 | static_cast<uint32_t>(digit);
      }
      if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        malformed("the escape \\", rest.substr(i, digits + 1), " is no character");
      }
      append_utf8(value, static_cast<int32_t>(code));
      i += digits;
    } else if (rest[i] != '\n') {  // others mean themselves, with the backslash
      value += '\\';
      value += rest[i];
    }
  }

  void sign(std::string_view rest, std::string& brackets) {
    static constexpr std::string_view kSigns[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "*",
                                                  "/",  "%",  "~",  "<",  ">",  "(",  ")", "[", "]",
                                                  "{",  "}",  ",",  ".",  ":",  "|",  "="};
    for (const std::string_view known : kSigns) {
      if (!rest.starts_with(known)) continue;
      const char c = known[0];
      if (c == '(' || c == '[' || c == '{') brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (brackets.empty() || brackets.back() != c) malformed("an unexpected '", c, "'");
        brackets.pop_back();
      }
      tokens_.push_back({Kind::sign, std::string(known), line_});
      at_ += known.size();
      return;
    }
    malformed("the character ", quote(rest.substr(0, 1)), " means nothing in a tag");
  }

  const std::string& where_;
  const std::string source_;
  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;  // the text at `at_` begins a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& where) {
  return Lexer(source, where).run();
}

}  // namespace halftone::jinja

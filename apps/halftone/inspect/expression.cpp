// The rule "lane -> address" as an expression.
#include <fmt/format.h>

#include <cctype>

#include "command.h"
#include "inspect/subjects.h"

namespace halftone::app {

namespace {

class Parser {
 public:
  Parser(const std::string& text, uint32_t lane) : text_(text), lane_(lane) {}
  uint32_t parse() {
    const uint64_t value = binary(0);
    if (skip_space() < text_.size()) refuse("an operator or the end");
    if (value >= 1u << 18) {
      wrong_input(
          fmt::format("inspect: --address \"{}\" gives {} for lane {}; shared addresses are "
                      "below 262144",
                      text_, value, lane_));
    }
    return static_cast<uint32_t>(value);
  }

 private:
  // Levels of precedence as in C, loosest first.
  static constexpr const char* kOperators[6][3] = {{"|", nullptr}, {"^", nullptr}, {"&", nullptr},
                                                   {"<<", ">>"},   {"+", "-"},     {"*", "/", "%"}};

  size_t skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_;
  }
  [[noreturn]] void refuse(const char* expected) const {
    wrong_input(
        fmt::format("inspect: --address \"{}\" wants {} at letter {}", text_, expected, at_ + 1));
  }
  bool take(const std::string& symbol) {
    skip_space();
    if (text_.compare(at_, symbol.size(), symbol) != 0) return false;
    at_ += symbol.size();
    return true;
  }

  uint64_t binary(int level) {
    if (level == 6) return primary();
    uint64_t left = binary(level + 1);
    for (bool found = true; found;) {
      found = false;
      for (const char* op : kOperators[level]) {
        if (op == nullptr || !take(op)) continue;
        left = apply(op, left, binary(level + 1));
        found = true;
        break;
      }
    }
    return left;
  }
  uint64_t apply(const std::string& op, uint64_t a, uint64_t b) {
    if ((op == "/" || op == "%") && b == 0) refuse("a divisor that is not 0 before this place");
    if ((op == "<<" || op == ">>") && b > 31) refuse("a shift below 32 before this place");
    // 32-bit addresses, so that lane * 2^40 is no surprise.
    switch (op[0]) {
      case '|':
        return a | b;
      case '^':
        return a ^ b;
      case '&':
        return a & b;
      case '<':
        return (a << b) & 0xFFFFFFFF;
      case '>':
        return a >> b;
      case '+':
        return (a + b) & 0xFFFFFFFF;
      case '-':
        return (a - b) & 0xFFFFFFFF;
      case '*':
        return (a * b) & 0xFFFFFFFF;
      case '/':
        return a / b;
      default:
        return a % b;
    }
  }
  uint64_t primary() {
    if (take("(")) {
      if (++depth_ > 64) refuse("at most 64 parentheses");
      const uint64_t value = binary(0);
      if (!take(")")) refuse("\")\"");
      --depth_;
      return value;
    }
    if (take("lane")) return lane_;
    if (at_ >= text_.size() || std::isdigit(static_cast<unsigned char>(text_[at_])) == 0)
      refuse("a number, lane or \"(\"");
    const bool hexadecimal = text_.compare(at_, 2, "0x") == 0;
    if (hexadecimal) at_ += 2;
    uint64_t value = 0;
    for (; at_ < text_.size(); ++at_) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (hexadecimal ? std::isxdigit(c) == 0 : std::isdigit(c) == 0) break;
      const int digit = std::isdigit(c) != 0 ? c - '0' : std::tolower(c) - 'a' + 10;
      value = value * (hexadecimal ? 16 : 10) + static_cast<uint64_t>(digit);
      if (value > 0xFFFFFFFF) refuse("a number below 2^32");
    }
    return value;
  }

  const std::string& text_;
  uint32_t lane_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

uint32_t lane_expression(const std::string& text, uint32_t lane) {
  return Parser(text, lane).parse();
}

}  // namespace halftone::app

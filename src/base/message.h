// Building one-sentence error messages from values, without a formatting library.
#pragma once
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "halftone/error.h"

namespace halftone {

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  throw Error(code, concat(parts...));
}

// A value whose text is made only when the message is: arguments of `require` are evaluated even
// where the rule holds, and texts of shapes cost more than a small operation's other checks.
template <class T>
struct Shown {
  const T& value;
  friend std::ostream& operator<<(std::ostream& out, const Shown& shown) {
    return out << to_string(shown.value);
  }
};
template <class T>
Shown<T> shown(const T& value) {
  return {value};
}

// Rule of an argument: the message is built only when the rule is broken.
template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) fail(ErrorCode::invalid_argument, parts...);
}

// Throws `unsupported` with the reason unless ok.
inline void require_support(const Support& support) {
  if (!support.ok) throw Error(ErrorCode::unsupported, support.reason);
}

// The candidate with the smallest edit distance to `word`; empty when there is none.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace halftone

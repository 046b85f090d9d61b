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

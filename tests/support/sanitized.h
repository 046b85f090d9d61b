// Whether a sanitizer watches: simulated GPUs are ten times as slow then, and see nothing more in
// the seventh format than in the first.
#pragma once

#include <cstddef>
#include <vector>

namespace halftone::test {

#if defined(HALFTONE_SANITIZED)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// The whole list, and where a sanitizer watches `count` of it, the first and others evenly apart.
template <class T>
std::vector<T> some(const std::vector<T>& all, size_t count = 2) {
  if (!kSanitized || all.size() <= count) return all;
  std::vector<T> few;
  for (size_t i = 0; i < count; ++i) few.push_back(all[i * all.size() / count]);
  return few;
}

}  // namespace halftone::test

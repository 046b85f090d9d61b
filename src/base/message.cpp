#include "base/message.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace halftone {

namespace {
// Levenshtein distance, one row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}
}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const auto best = std::min_element(candidates.begin(), candidates.end(),
                                     [&](const std::string& a, const std::string& b) {
                                       return edit_distance(word, a) < edit_distance(word, b);
                                     });
  return best == candidates.end() ? std::string() : *best;
}

}  // namespace halftone

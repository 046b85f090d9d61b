// What the rows of `halftone bench` should reach, and what others published: data by the rows'
// names.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/row.h"

namespace halftone {

struct BenchTarget {
  enum class Of {
    roof,     // value / roof at least
    peer,     // value / peer measured in the same run at least
    row,      // value / that of the row `other` at least
    value,    // value at least, in the row's unit
    seconds,  // at most
  };
  const char* rows;  // a name, "*" standing for any characters
  Of of;
  double bound;
  const char* other = "";
};
// The first whose pattern fits, or null.
const BenchTarget* target_of(const std::string& row);

struct Judgement {
  std::string target;  // "0.95 of oneDNN", as a sentence's end
  double reached = 0;  // in the target's measure
  bool met = false;
};
// Nothing where there is no target, or nothing in this run to compare with.
std::optional<Judgement> judge(const BenchRow&, std::span<const BenchRow> all);

// Figures of other systems, measured on the machine that the targets name (2 cores of Zen 5) when
// the targets were set: a guide where a peer is not at hand.
struct Published {
  const char* row;
  const char* peer;
  double value;
  const char* unit;
};
std::vector<Published> published_for(const std::string& row);
// Where those figures are from.
extern const char* const kPublishedSource;

}  // namespace halftone

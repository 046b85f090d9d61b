// What the rows of `halftone bench` should reach, and what others published: data by the rows'
// names.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/row.h"

namespace halftone {

// Patterns are names of rows with "*" for any characters.
struct BenchTarget {
  enum class Of {
    roof,     // value / roof at least
    peer,     // value / peer measured in the same run at least, where the peer is `other`, or any
    row,      // value / that of the row `other` at least, "$1" being what the first "*" stands for
    value,    // value at least, in the row's unit
    seconds,  // at most
  };
  const char* family;  // "cpu gemv", "gpu attention": the device's and the bench's name
  const char* rows;
  Of of;
  double bound;
  const char* other = "";
  const char* source;  // the line of the targets it is a copy of
};
// Rows that have no target, and why.
struct BenchWithoutTarget {
  const char* family;
  const char* rows;
  const char* why;
};
// Targets that no row measures yet, and why.
struct BenchTargetWithoutRow {
  const char* source;
  const char* why;
};

// Of a row the first of its family whose pattern fits counts, targets before reasons.
std::span<const BenchTarget> bench_targets();
std::span<const BenchWithoutTarget> bench_without_target();
std::span<const BenchTargetWithoutRow> bench_targets_without_row();
const BenchTarget* target_of(std::string_view family, const std::string& row);
const BenchWithoutTarget* reason_of(std::string_view family, const std::string& row);
// The row that a target of Of::row compares `row` with.
std::string compared_with(const BenchTarget&, const std::string& row);
// "0.95 of oneDNN", of a row.
std::string to_string(const BenchTarget&, const std::string& row, const std::string& unit);

struct Judgement {
  std::string target;  // "0.95 of oneDNN", as a sentence's end
  double reached = 0;  // in the target's measure
  bool met = false;
};
// Nothing where there is no target, or nothing in this run to compare with. A row is never compared
// with itself.
std::optional<Judgement> judge(std::string_view family, const BenchRow&,
                               std::span<const BenchRow> all);

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

// One line of `halftone bench`.
#pragma once
#include <algorithm>
#include <stop_token>
#include <string>
#include <vector>

namespace halftone {

// Seconds of repeated calls: the median, and the quartiles as its spread. Counts as the median.
struct Timing {
  double median = 0, low = 0, high = 0;
  int repeats = 0;
  Timing(double seconds = 0) : median(seconds), low(seconds), high(seconds) {}  // NOLINT
  operator double() const { return median; }                                    // NOLINT
};

struct BenchRow {
  std::string name;  // what bench_targets.cpp knows it by
  Timing seconds;
  double value = 0;      // in `unit`
  double sustained = 0;  // the same after half a second of load; 0: not measured
  std::string unit;
  double roof = 0;  // in `unit`, measured in the same run
  std::string roof_name;
  double peer = 0;  // in `unit`, measured in the same run; 0: none
  std::string peer_name;
  // Of one call, for the roofline: what it computes and what it must read and write. 0: not said.
  double flops = 0, bytes = 0;
  // Of a GPU during the sustained figure; 0: not known.
  double clock_ghz = 0, watts = 0;
};

// Which rows of a run are measured.
struct BenchChoice {
  std::vector<std::string> rows = {};  // those whose names contain one of these; empty: all
  std::stop_token stop = {};           // when it is requested, no more of them
  // Not null: names alone are wanted, here; nothing is measured, and what a row would need is not
  // made.
  std::vector<std::string>* listed = nullptr;
  bool asks_for(const std::string& row) const {
    return rows.empty() || std::any_of(rows.begin(), rows.end(), [&](const std::string& part) {
             return row.find(part) != std::string::npos;
           });
  }
  // Whether to measure a row now, which stderr then shows.
  bool begins(const std::string& row) const;
  bool only_lists() const { return listed != nullptr; }
};

}  // namespace halftone

// One line of `halftone bench`.
#pragma once
#include <string>

namespace halftone {

struct BenchRow {
  std::string name;
  double seconds = 0;  // median of the repeats
  double value = 0;    // in `unit`
  std::string unit;
  double roof = 0;  // in `unit`, measured in the same run
  std::string roof_name;
  double peer = 0;  // in `unit`; 0: none known
  std::string peer_name;
};

}  // namespace halftone

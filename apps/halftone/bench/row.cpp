#include "bench/row.h"

#include "console.h"

namespace halftone {

bool BenchChoice::begins(const std::string& row) const {
  if (!asks_for(row) || stop.stop_requested()) return false;
  if (listed != nullptr) {
    listed->push_back(row);
    return false;
  }
  app::step("bench: " + row);
  return true;
}

}  // namespace halftone

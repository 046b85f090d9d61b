// Where a launch's violations gather. Execution's own header: models call report().
#pragma once
#include <map>
#include <mutex>
#include <string>

#include "base/backend.h"
#include "halftone/simulator.h"

namespace halftone::sim {

class ReportSink {
 public:
  void add(SimulatorViolation);
  // The violations in an order that does not depend on which OS thread found them first.
  std::vector<SimulatorViolation> take();

 private:
  std::mutex mutex_;
  std::map<std::string, SimulatorViolation> found_;  // by rule and sites
};

}  // namespace halftone::sim

namespace halftone {

// What a stream on a simulated device carries.
struct SimulatorStream final : StreamState {
  std::mutex mutex;
  SimulatorOptions options;
  SimulatorReport report;
};

}  // namespace halftone

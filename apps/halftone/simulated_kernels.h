// Kernels that `halftone simulate` runs by name, each with a small problem around it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "halftone/device.h"
#include "halftone/stream.h"

namespace halftone::app {

struct SimulatedKernel {
  std::string name, summary;
  Arch arch;                        // the first that has its instructions
  std::vector<std::string> extent;  // names of the problem's extents, for --size
  std::vector<int64_t> size;        // of the default problem
  // Launches it; the sentence says how the result compares with its reference ("" when there is
  // none).
  std::function<std::string(Stream&, const std::vector<int64_t>& size)> run;
};

// All of them: the steps of the ladder, and both forms of every bug of the catalogue.
std::vector<SimulatedKernel> simulated_kernels();

}  // namespace halftone::app

// Running a grid. Called by the simulated devices' backend.
#pragma once
#include "base/launch.h"
#include "halftone/simulator.h"
#include "sim/chip.h"

namespace halftone {
class ThreadPool;
}

namespace halftone::sim {

struct LaunchResult {
  std::vector<SimulatorViolation> violations;  // worst first
  SimulatorCounters counters;
};

// The shape is within the limits of the device. Returns when every cluster has ended, or after the
// first fatal violation.
LaunchResult run_grid(const KernelImage&, const LaunchShape&, const void* params, Arch,
                      const SimulatorOptions&, ThreadPool&);

// Registers a thread has at the start: the most that the launch bound leaves it.
uint32_t launch_registers(const KernelImage&, const Chip&);

}  // namespace halftone::sim

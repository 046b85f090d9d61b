// What the simulator's tests share: kernels written straight on sim/, and launching them.
#pragma once
#include <string>
#include <type_traits>

#include "base/launch.h"
#include "halftone/simulator.h"
#include "hw/entry.h"
#include "sim/sim.h"

namespace halftone::test {

using sim::Site;

// A kernel whose body is a lambda of one argument, the thread itself:
//   run(stream, {.block = {64}}, [&](sim::Thread& me) { ... });
// Captured variables stand for global memory that the checks do not see.
template <class Body>
void run(Stream& stream, LaunchShape shape, Body&& body, uint32_t min_blocks = 1) {
  struct Params {
    std::remove_reference_t<Body>* body;
  };
  const KernelImage kernel{
      .name = "test_kernel",
      .arch = Arch::sm_80,
      .gpu_entry = nullptr,
      .sim_body = [](const void* p) { (*static_cast<const Params*>(p)->body)(sim::self()); },
      .params_bytes = sizeof(Params),
      .threads = static_cast<uint32_t>(shape.block.count()),
      .min_blocks = min_blocks};
  launch(kernel, shape, Params{&body}, stream);
}

using Options = SimulatorOptions;
inline constexpr Options::Schedule kSchedules[] = {
    Options::Schedule::fifo, Options::Schedule::random, Options::Schedule::adversarial};

inline Stream simulated(Arch arch = Arch::sm_90a, Options options = {}, int threads = 0) {
  Stream stream(Device::simulator(arch), threads);
  configure(stream, options);
  return stream;
}

// The report of a launch that breaks a rule; the text that the Error carries goes into `text`.
template <class Body>
SimulatorReport violations(LaunchShape shape, const Body& body, Options options = {},
                           Arch arch = Arch::sm_90a, uint32_t min_blocks = 1, int threads = 0) {
  options.throws = false;
  Stream stream = simulated(arch, options, threads);
  run(stream, shape, body, min_blocks);
  return simulator_report(stream);
}

inline const SimulatorViolation* find(const SimulatorReport& report, const std::string& rule) {
  for (const SimulatorViolation& violation : report.violations) {
    if (violation.rule == rule) return &violation;
  }
  return nullptr;
}

}  // namespace halftone::test

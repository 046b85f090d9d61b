// Options and findings of the simulated GPU, `Device::simulator(arch)`.
//
//   Stream stream(Device::simulator(Arch::sm_90a));
//   configure(stream, {.schedule = SimulatorOptions::Schedule::random, .seed = 7});
//   launch(...);                                    // throws Error when a rule is broken
//   std::string text = to_string(simulator_report(stream));
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "halftone/device.h"

namespace halftone {

class Stream;

struct SimulatorOptions {
  // off: no shadow memory, no clocks. check: what is proven wrong. strict: also the letter of the
  // specification, which shipping kernels sometimes ignore.
  enum class Severity : uint8_t { off, check, strict };
  // exact: tensor cores bit for bit. fast: the same operands in plain FP32.
  enum class Numerics : uint8_t { exact, fast };
  // fifo: in order, fastest. random: any ready warp. adversarial: whoever has waited least, a lane
  // left behind until nobody else can run, and asynchronous work as late or as early as it can
  // happen.
  enum class Schedule : uint8_t { fifo, random, adversarial };

  Severity severity = Severity::check;
  Numerics numerics = Numerics::exact;
  Schedule schedule = Schedule::fifo;
  uint64_t seed = 1;     // 0 is a seed as any other; reports print it
  bool throws = true;    // a launch with violations ends in an Error; else fetch the report
  bool counters = true;  // shared-memory conflicts and the like, per site
  uint64_t step_limit = 1u << 31;  // scheduling steps a cluster may take before it counts as hung
};

// "strict,fast,random,seed=7,throws=0" over `base`; Error names a word it does not know.
SimulatorOptions parse_simulator_options(std::string_view, SimulatorOptions base = {});
std::string to_string(const SimulatorOptions&);

// One of the two places a report names.
struct SimulatorAccess {
  std::string what;   // "st.shared of 16 bytes at 0x440", "waits for mbarrier full[1]"
  std::string role;   // name given by hw::set_role, or ""
  std::string proxy;  // "generic", "async", or ""
  std::string file, function;
  uint32_t line = 0;
  uint64_t block = 0;        // linear index in the grid
  int warp = -1, lane = -1;  // -1: not one of them (a warp acts as one, a piece of hardware)
  int64_t phase = -1;        // of the barrier concerned, or -1
};

struct SimulatorViolation {
  // fatal ones end the launch, whatever the severity asked for.
  enum class Level : uint8_t { warning, strict, error, fatal };
  Level level = Level::error;
  std::string rule;                       // "mbarrier.underflow": stable, for tests
  std::string text;                       // a sentence with the values
  std::string fix;                        // what would fix it, or ""
  std::vector<SimulatorAccess> accesses;  // the offending one first
  uint64_t count = 1;                     // times found with the same rule and sites
};

struct SimulatorCounters {
  struct Count {
    std::string name;
    uint64_t count = 0;
  };
  struct SharedSite {
    std::string file;
    uint32_t line = 0;
    std::string what;       // "ld.shared.b128", "ldmatrix.x4"
    uint64_t accesses = 0;  // warp-wide instructions
    uint64_t bytes = 0;
    uint64_t wavefronts = 0, ideal = 0;  // ideal: the least possible for those bytes
  };
  std::vector<Count> instructions;       // executions by name, warp-wide ones counted once
  std::vector<Count> multiply_adds;      // of tensor cores, by kind ("wgmma.bf16")
  std::vector<SharedSite> shared_sites;  // most conflicts first
  uint64_t shared_wavefronts = 0, shared_ideal = 0;
  uint64_t async_shared_bytes = 0;                     // shared memory read and written by engines
  uint64_t tma_bytes_read = 0, tma_bytes_written = 0;  // global memory, by engines
  uint64_t global_bytes_read = 0, global_bytes_written = 0;  // global memory, by threads
  uint64_t hbm_bytes = 0;                                    // distinct 32-byte sectors touched
  uint64_t mufu = 0;                                         // per thread
  uint64_t barrier_waits = 0;
  uint64_t steps = 0;  // of the scheduler
};

// Least time one unit of the chip needs for the work counted.
struct SimulatorBound {
  std::string unit;  // "tensor core", "shared memory", "mufu", "l2", "hbm"
  double seconds = 0;
  std::string how;  // the division, with its figures
};

struct SimulatorReport {
  std::string kernel;  // of the last launch
  std::string device;  // "sim:sm_90a (H200)"
  SimulatorOptions options;
  std::vector<SimulatorViolation> violations;
  SimulatorCounters counters;
  std::vector<SimulatorBound> bounds;  // longest first
  uint64_t launches = 0;
  bool clean() const { return violations.empty(); }
};

// Text for people; `counters` adds the counters and bounds.
std::string to_string(const SimulatorReport&, bool counters = true);
std::string to_string(const SimulatorViolation&);

// The stream must be on a simulated device. Options hold for later launches on that stream; the
// environment variable HALFTONE_SIM (same words as parse_simulator_options) overrides them.
void configure(Stream&, const SimulatorOptions&);
const SimulatorOptions& simulator_options(const Stream&);
// Findings of every launch since the last clear.
const SimulatorReport& simulator_report(const Stream&);
void clear_simulator_report(Stream&);

}  // namespace halftone

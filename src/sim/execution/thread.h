// Who runs: thread, warp, block, cluster and launch of a simulated kernel.
//
// A cluster runs on one OS thread from start to end, so nothing inside a cluster needs a lock;
// clusters run beside each other. Every thread of the kernel is a fiber that runs until it waits.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>

#include "base/launch.h"
#include "halftone/simulator.h"
#include "sim/chip.h"

namespace halftone::sim {

using Site = std::source_location;  // of the hw call in the kernel source
bool same_site(const Site&, const Site&);
std::string to_string(const Site&);  // "attention.cuh:88"

struct Thread;
struct Warp;
struct Block;
struct Cluster;
struct Launch;
struct Fiber;
class Waiting;
class MemoryModel;
class Scheduler;
struct ExecutionState;  // barriers, register pool: execution's
struct ClusterCounters;

enum class Proxy : uint8_t { generic, async, tensormap };
const char* name(Proxy);

// Whoever accesses memory: a thread in the generic proxy, or a piece of asynchronous work, which
// acts for the thread that issued it and has its own clock.
struct Agent {
  Block* block = nullptr;    // whose shared memory a plain shared address means
  Thread* thread = nullptr;  // itself, or the issuer
  Proxy proxy = Proxy::generic;
  void* clock = nullptr;  // the memory model's
};

struct Thread : Agent {
  enum class State : uint8_t { ready, running, waiting, exited };
  Warp* warp = nullptr;
  uint32_t index = 0;  // linear in the block
  uint32_t lane = 0;
  Dim3 position;  // threadIdx
  State state = State::ready;
  uint64_t polled = 0;     // sites of its polling since it last did something else, hashed to bits
  bool spinning = false;   // gave way in a polling loop
  Fiber* fiber = nullptr;  // null before its first step
  const Waiting* waiting = nullptr;                  // what it waits for, while it does
  Thread* next_waiting = nullptr;                    // in its WaitQueue
  const char* role = nullptr;                        // hw::set_role
  uint32_t cluster_arrivals = 0, cluster_waits = 0;  // of barrier.cluster
  Site last_site;                                    // of the last instruction that could block
};

struct Warp {
  Block* block = nullptr;
  uint32_t index = 0;         // in the block
  Thread* threads = nullptr;  // `lanes()` of them
  uint32_t present = 0;       // lanes that exist (the last warp may be partial)
  uint32_t exited = 0;        // lanes that have returned
  uint32_t ready = 0;         // lanes that can run
  bool queued = false;        // in the scheduler's queue
  uint32_t registers = 0;     // a thread, by setmaxnreg accounting
  void* clock = nullptr;      // the memory model's
  Thread& thread(uint32_t lane) const { return threads[lane]; }
};

struct Block {
  Cluster* cluster = nullptr;
  uint32_t rank = 0;    // in the cluster
  Dim3 index;           // blockIdx
  uint64_t linear = 0;  // in the grid
  uint32_t thread_count = 0, warp_count = 0;
  Thread* threads = nullptr;
  Warp* warps = nullptr;
  uint32_t exited = 0;  // threads that have returned
  ExecutionState* state = nullptr;
  void* memory = nullptr;  // the memory model's: shared memory, tensor memory
};

struct Cluster {
  Launch* launch = nullptr;
  uint64_t index = 0;        // in the grid; clusters start in this order
  Dim3 position;             // of the cluster in the grid of clusters
  uint32_t block_count = 0;  // its size
  Block* blocks = nullptr;
  Scheduler* scheduler = nullptr;
  MemoryModel* memory = nullptr;
  ClusterCounters* counters = nullptr;
};

class ReportSink;
struct Launch {
  const KernelImage& kernel;
  const LaunchShape& shape;
  const void* params;
  const Chip& chip;
  const SimulatorOptions& options;
  ReportSink& sink;
  uint32_t registers_per_thread;     // by the launch bound: see setmaxnreg in barrier.h
  std::atomic<bool> stopped{false};  // a fatal violation: every fiber unwinds
  // The memory model's, of all clusters together.
  std::mutex memory_mutex{};
  std::shared_ptr<void> memory{};
};

// The running thread. Only inside a kernel (or a model run for one).
Thread& self();
bool in_kernel();
// The cluster whose threads or asynchronous work run on this OS thread, or null.
Cluster* running_cluster();
// Every thread of a warp-specialised role calls this; reports use the name. A string literal.
void set_role(const char* name);

inline Cluster& cluster_of(const Agent& agent) { return *agent.block->cluster; }
inline Launch& launch_of(const Agent& agent) { return *agent.block->cluster->launch; }
inline bool checking(const Agent& agent) {
  return launch_of(agent).options.severity != SimulatorOptions::Severity::off;
}

// "block 3 warp 4 lane 0 (producer)".
std::string describe(const Thread&);

}  // namespace halftone::sim

// What a cluster counts. Execution's own header: models use "sim/counters.h".
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/execution/thread.h"
#include "sim/memory/device_memory.h"

namespace halftone::sim {

// Executions by name. Names are literals, compared by address here and by text when merged.
class NameCounts {
 public:
  void add(const char* name, uint64_t count) {
    if (name == last_) return void(entries_[last_index_].second += count);
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].first != name) continue;
      last_ = name, last_index_ = i;
      return void(entries_[i].second += count);
    }
    entries_.emplace_back(name, count);
  }
  void merge_into(std::vector<SimulatorCounters::Count>&) const;
  void clear() { entries_.clear(), last_ = nullptr; }

 private:
  std::vector<std::pair<const char*, uint64_t>> entries_;
  const char* last_ = nullptr;
  size_t last_index_ = 0;
};

// Accesses of one place in the kernel by one warp, waiting for the warp's other lanes.
struct PendingAccesses {
  struct Access {
    uint32_t mask = 0;
    uint32_t addresses[32];
  };
  uint32_t first = 0;      // number of the oldest pending access
  uint32_t next[32] = {};  // number of each lane's next one
  std::vector<Access> open;
};

struct SharedSiteCount {
  Site site;
  const char* what = nullptr;
  uint32_t bytes_each = 0;
  uint64_t accesses = 0, bytes = 0, wavefronts = 0, ideal = 0;
  std::vector<PendingAccesses> warps;  // of the cluster
};

struct ClusterCounters {
  bool enabled = false;
  NameCounts instructions, multiply_adds;
  uint64_t async_shared_bytes = 0, mufu = 0, barrier_waits = 0;
  uint64_t tma_read = 0, tma_written = 0, global_read = 0, global_written = 0, hbm_bytes = 0;
  uint64_t steps = 0;
  std::vector<SharedSiteCount> sites;
  std::vector<uint32_t> table;  // open addressing: index into sites + 1
  const Allocation* last_allocation = nullptr;

  SharedSiteCount& site(const Site&, const char* what, uint32_t bytes);
  // Counts what is still pending; at a cluster's end.
  void flush();
  SimulatorCounters result() const;
  void clear();
};

void add_counters(SimulatorCounters& to, const SimulatorCounters& from);

// Longest first.
std::vector<SimulatorBound> bounds(const SimulatorCounters&, const Chip&);

}  // namespace halftone::sim

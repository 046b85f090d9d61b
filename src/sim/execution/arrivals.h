// Who arrived at a barrier, phase by phase: what a deadlock report says about the missing ones.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/execution/thread.h"

namespace halftone::sim {

// Kept by every named barrier and every mbarrier.
class Arrivals {
 public:
  // `count` arrivals by a warp (its lanes' are added up); null: by asynchronous work.
  void arrived(const Thread*, const Site&, uint32_t count = 1);
  // The phase is complete: those who came are whom the next one expects.
  void completed();
  void clear();

  // "in this phase: warps 0-3 (producer) at k.cuh:30; missing, by the phase before: warps 4-7
  //  (consumer), 128 arrivals, last at k.cuh:88, now waiting at k.cuh:95".
  // In a barrier's first phase instead: "could still arrive: warps 4-7 (consumer), now waiting
  // ...", all warps of the cluster that have not returned and do not wait for `key` (Waiting::key).
  std::string text(const void* key = nullptr) const;

 private:
  std::string others(const void* key) const;

  struct Entry {
    const Warp* warp;
    uint32_t count;
    Site site;
  };
  std::vector<Entry> current_, previous_;
};

}  // namespace halftone::sim

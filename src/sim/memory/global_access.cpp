// Loads, stores and atomics on global memory, and races between clusters.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>

#include "sim/memory/device_memory.h"
#include "sim/memory/grid_memory.h"
#include "sim/memory/memory.h"

namespace halftone::sim {

namespace {

// Who touched a 32-bit word last: the cluster (from 1 on) and which bytes.
struct GlobalCell {
  uint32_t writer = 0, reader = 0;  // cluster << 4 | bytes
  uint16_t writer_epoch = 0, reader_epoch = 0;
  uint16_t writer_site = 0;  // site << 1 | atomic
  uint16_t reader_site = 0;
};
static_assert(sizeof(GlobalCell) == 16);

constexpr uint32_t kPageWords = 1024;
struct Page {
  uint64_t launch = 0;
  GlobalCell cells[kPageWords];
};

class SpinLock {
 public:
  void lock() {
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }
  }
  void unlock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};

struct GlobalShadow {
  explicit GlobalShadow(size_t bytes) : pages((bytes / 4) / kPageWords + 1), locks(64) {}
  std::vector<std::unique_ptr<Page>> pages;
  std::vector<SpinLock> locks;
};

// Knowledge of clusters about clusters.
using Horizon = std::vector<std::pair<uint32_t, uint32_t>>;  // cluster, epoch

uint32_t epoch_of(const Horizon& horizon, uint32_t cluster) {
  for (const auto& [other, epoch] : horizon) {
    if (other == cluster) return epoch;
  }
  return 0;
}

void join(Horizon& into, const Horizon& from) {
  for (const auto& [cluster, epoch] : from) {
    const auto found = std::find_if(into.begin(), into.end(),
                                    [&](const auto& entry) { return entry.first == cluster; });
    if (found == into.end()) {
      into.emplace_back(cluster, epoch);
    } else {
      found->second = std::max(found->second, epoch);
    }
  }
}

std::atomic<uint64_t> launches{0};

// Atomics of clusters on other OS threads.
SpinLock atomic_locks[64];
SpinLock& lock_of(const void* address) {
  return atomic_locks[reinterpret_cast<uintptr_t>(address) / 16 % 64];
}

}  // namespace

struct GridState {
  uint64_t launch = ++launches;
  std::mutex mutex;
  std::unordered_map<const void*, Horizon> flags;
  std::vector<std::pair<Site, const char*>> sites{1};
};

struct Standing {
  uint32_t cluster = 0;
  uint32_t epoch = 1;
  Horizon known;
  Horizon fenced;                  // what relaxed stores after a fence release
  Horizon relaxed_reads;           // what a later fence acquires
  std::vector<uint16_t> site_ids;  // of this cluster's site ids
};

void join_grid(ClusterMemory& memory) {
  memory.grid.reset();
  memory.standing.reset();
  std::fill(std::begin(memory.recent), std::end(memory.recent), nullptr);
  Launch& launch = *memory.cluster->launch;
  if (!memory.checking || launch.shape.grid.count() == memory.cluster->block_count) return;
  {
    std::lock_guard lock(launch.memory_mutex);
    if (launch.memory == nullptr) launch.memory = std::make_shared<GridState>();
    memory.grid = std::static_pointer_cast<GridState>(launch.memory);
  }
  memory.standing = std::make_shared<Standing>();
  memory.standing->cluster = static_cast<uint32_t>(memory.cluster->index) + 1;
}

void leave_grid(ClusterMemory& memory) {
  memory.grid.reset();
  memory.standing.reset();
}

void fence_grid(ClusterMemory& memory) {
  if (memory.grid == nullptr) return;
  Standing& standing = *memory.standing;
  join(standing.known, standing.relaxed_reads);
  standing.relaxed_reads.clear();
  standing.fenced = standing.known;
  join(standing.fenced, {{standing.cluster, standing.epoch}});
  ++standing.epoch;
}

namespace {

uint16_t launch_site(ClusterMemory& memory, uint32_t id) {
  auto& ids = memory.standing->site_ids;
  if (ids.size() <= id) ids.resize(id + 1);
  if (ids[id] != 0) return ids[id];
  const ClusterMemory::SiteEntry& entry = memory.site(id);
  std::lock_guard lock(memory.grid->mutex);
  auto& sites = memory.grid->sites;
  for (size_t i = 1; i < sites.size(); ++i) {
    if (same_site(sites[i].first, entry.site) && sites[i].second == entry.instruction) {
      return ids[id] = static_cast<uint16_t>(i);
    }
  }
  if (sites.size() >= 0x7fff) return 0;
  sites.emplace_back(entry.site, entry.instruction);
  return ids[id] = static_cast<uint16_t>(sites.size() - 1);
}

void report_race(Agent& agent, ClusterMemory& memory, const GlobalCell& cell, bool prior_write,
                 bool write, const void* address, const Site& site) {
  const uint32_t other = (prior_write ? cell.writer : cell.reader) >> 4;
  std::pair<Site, const char*> where;
  {
    std::lock_guard lock(memory.grid->mutex);
    where = memory.grid->sites[prior_write ? cell.writer_site >> 1 : cell.reader_site];
  }
  SimulatorAccess prior;
  prior.what = std::string(where.second != nullptr ? where.second : "") +
               (prior_write ? " write" : " read") + " by a thread of cluster " +
               std::to_string(other - 1);
  prior.file = where.first.file_name();
  prior.function = where.first.function_name();
  prior.line = where.first.line();
  prior.block = uint64_t{other - 1} * memory.cluster->block_count;
  const Allocation* allocation = find_allocation(address);
  std::string text = std::string(write ? "write" : "read") + " of global memory";
  if (allocation != nullptr) {
    text += " (allocation " + std::to_string(allocation->number) + ", byte " +
            std::to_string(static_cast<const uint8_t*>(address) - allocation->data) + ")";
  }
  Violation violation;
  violation.rule = write && prior_write ? "global.race_write_write" : "global.race_read_write";
  violation.text = text + " races with another block's " + (prior_write ? "write" : "read") +
                   ": nothing orders the two";
  violation.fix = "atomics, or a release by the one and an acquire by the other";
  violation.accesses = {access(agent, site, text), std::move(prior)};
  report(agent, std::move(violation));
}

void check_race(Agent& agent, Allocation& allocation, const void* address, uint32_t bytes,
                bool write, bool atomic, const Site& site) {
  ClusterMemory& memory = memory_of(agent);
  Standing& standing = *memory.standing;
  const AgentState& state = state_of(agent);
  const bool work = state.operation != nullptr;
  const Site& where = work ? state.operation->site : site;
  const uint16_t id = launch_site(
      memory, memory.site_id(where, work ? state.operation->operation.instruction : nullptr));
  GlobalShadow* shadow;
  {
    static std::mutex creation;
    std::lock_guard lock(creation);
    if (allocation.shadow == nullptr) {
      allocation.shadow = std::make_shared<GlobalShadow>(allocation.bytes);
    }
    shadow = static_cast<GlobalShadow*>(allocation.shadow.get());
  }
  const auto at = static_cast<size_t>(static_cast<const uint8_t*>(address) - allocation.data);
  const auto epoch = static_cast<uint16_t>(std::min<uint32_t>(standing.epoch, 0xffff));
  const auto ordered = [&](uint32_t who, uint16_t when) {
    return who >> 4 == standing.cluster || when == 0xffff ||
           epoch_of(standing.known, who >> 4) >= when;
  };
  size_t word = at / 4;
  const size_t last = (at + bytes - 1) / 4;
  while (word <= last) {
    const size_t page_index = word / kPageWords;
    SpinLock& spin = shadow->locks[page_index % 64];
    std::unique_lock lock(spin);
    auto& page = shadow->pages[page_index];
    if (page == nullptr) page = std::make_unique<Page>();
    if (page->launch != memory.grid->launch) {
      *page = {};
      page->launch = memory.grid->launch;
    }
    for (; word <= last && word / kPageWords == page_index; ++word) {
      GlobalCell& cell = page->cells[word % kPageWords];
      const size_t from = std::max(at, word * 4), to = std::min(at + bytes, word * 4 + 4);
      const auto marks = static_cast<uint32_t>(((1u << (to - from)) - 1) << (from % 4));
      const bool both_atomic = atomic && (cell.writer_site & 1) != 0;
      const bool hit_writer =
          (cell.writer & marks) != 0 && !both_atomic && !ordered(cell.writer, cell.writer_epoch);
      const bool hit_reader =
          write && (cell.reader & marks) != 0 && !ordered(cell.reader, cell.reader_epoch);
      if (hit_writer || hit_reader) {
        const GlobalCell found = cell;
        lock.unlock();
        report_race(agent, memory, found, hit_writer, write, allocation.data + word * 4, where);
        lock.lock();
      }
      if (write) {
        const uint32_t kept = cell.writer >> 4 == standing.cluster ? cell.writer & 15 : 0;
        cell.writer = standing.cluster << 4 | kept | marks;
        cell.writer_epoch = epoch;
        cell.writer_site = static_cast<uint16_t>(id << 1 | (atomic ? 1 : 0));
      } else if (!atomic) {
        const uint32_t kept = cell.reader >> 4 == standing.cluster ? cell.reader & 15 : 0;
        cell.reader = standing.cluster << 4 | kept | marks;
        cell.reader_epoch = epoch;
        cell.reader_site = id;
      }
    }
  }
}

Allocation* allocation_of(ClusterMemory& memory, const void* address, size_t bytes) {
  for (Allocation* allocation : memory.recent) {
    if (allocation != nullptr && allocation->contains(address, bytes)) return allocation;
  }
  Allocation* found = find_allocation(address);
  if (found != nullptr && found->contains(address, bytes) && !found->freed) {
    std::copy_backward(std::begin(memory.recent), std::end(memory.recent) - 1,
                       std::end(memory.recent));
    memory.recent[0] = found;
  }
  return found;
}

// The allocation, or null for a read of the kernel's parameters.
Allocation* checked(Agent& agent, const void* address, uint32_t bytes, bool write,
                    const Site& site) {
  const char* what = write ? "write of global memory" : "read of global memory";
  ClusterMemory& memory = memory_of(agent);
  Allocation* allocation = allocation_of(memory, address, bytes);
  const auto value = reinterpret_cast<uintptr_t>(address);
  if (allocation == nullptr && !write) {
    const Launch& launch = *memory.cluster->launch;
    const auto* params = static_cast<const uint8_t*>(launch.params);
    const auto* at = static_cast<const uint8_t*>(address);
    if (at >= params && at + bytes <= params + launch.kernel.params_bytes) return nullptr;
  }
  const AgentState& state = state_of(agent);
  const Site& where = state.operation != nullptr ? state.operation->site : site;
  if (allocation == nullptr || !allocation->contains(address, bytes) || allocation->freed) {
    std::string text = std::string(what) + ": " + std::to_string(bytes) + " bytes at " +
                       hex(value) + " are in no allocation of the device";
    if (allocation != nullptr) {
      const auto offset = static_cast<const uint8_t*>(address) - allocation->data;
      text = std::string(what) + ": " + std::to_string(bytes) + " bytes at offset " +
             std::to_string(offset) + " of allocation " + std::to_string(allocation->number) +
             ", which has " + std::to_string(allocation->bytes) + " bytes" +
             (allocation->freed ? " and has been freed" : "");
    }
    fatal(agent,
          allocation != nullptr && allocation->freed ? "global.freed" : "global.out_of_range",
          where, what, std::move(text), "fix the address, or the bounds check before the access");
  }
  if (state.operation == nullptr && bytes <= 16 && value % std::bit_floor(bytes) != 0) {
    fatal(agent, "global.misaligned", where, what,
          std::string(what) + ": " + std::to_string(bytes) + " bytes at " + hex(value) +
              " must be aligned to " + std::to_string(std::bit_floor(bytes)));
  }
  return allocation;
}

uint64_t flag_key(const void* address) { return reinterpret_cast<uintptr_t>(address); }

void read_global_flag(Agent& agent, const void* address, Order order) {
  read_flag(agent, flag_key(address), order);
  ClusterMemory& memory = memory_of(agent);
  if (memory.grid == nullptr) return;
  Standing& standing = *memory.standing;
  std::lock_guard lock(memory.grid->mutex);
  const auto found = memory.grid->flags.find(address);
  if (found == memory.grid->flags.end()) return;
  join(order == Order::acquire || order == Order::acq_rel ? standing.known : standing.relaxed_reads,
       found->second);
}

void write_global_flag(Agent& agent, const void* address, Order order) {
  write_flag(agent, flag_key(address), order);
  ClusterMemory& memory = memory_of(agent);
  if (memory.grid == nullptr) return;
  Standing& standing = *memory.standing;
  std::lock_guard lock(memory.grid->mutex);
  if (order == Order::release || order == Order::acq_rel) {
    Horizon& horizon = memory.grid->flags[address];
    join(horizon, standing.known);
    join(horizon, {{standing.cluster, standing.epoch}});
    ++standing.epoch;
  } else if (!standing.fenced.empty()) {
    join(memory.grid->flags[address], standing.fenced);
  }
}

}  // namespace

void read_global(Agent& agent, const void* from, void* to, uint32_t bytes, const Site& site) {
  if (bytes == 0) return;
  Allocation* allocation = checked(agent, from, bytes, false, site);
  if (allocation != nullptr && memory_of(agent).grid != nullptr) {
    check_race(agent, *allocation, from, bytes, false, false, site);
  }
  std::memcpy(to, from, bytes);
}

void write_global(Agent& agent, void* to, const void* from, uint32_t bytes, const Site& site) {
  if (bytes == 0) return;
  Allocation* allocation = checked(agent, to, bytes, true, site);
  if (allocation != nullptr && memory_of(agent).grid != nullptr) {
    check_race(agent, *allocation, to, bytes, true, false, site);
  }
  std::memcpy(to, from, bytes);
}

void read_global_ordered(Agent& agent, const void* from, void* to, uint32_t bytes, Order order,
                         MemoryScope, const Site& site) {
  Allocation* allocation = checked(agent, from, bytes, false, site);
  if (allocation != nullptr && memory_of(agent).grid != nullptr) {
    check_race(agent, *allocation, from, bytes, false, true, site);
  }
  {
    std::lock_guard lock(lock_of(from));
    std::memcpy(to, from, bytes);
    read_global_flag(agent, from, order);
  }
  poll(agent, site);
}

void write_global_ordered(Agent& agent, void* to, const void* from, uint32_t bytes, Order order,
                          MemoryScope, const Site& site) {
  Allocation* allocation = checked(agent, to, bytes, true, site);
  if (allocation != nullptr && memory_of(agent).grid != nullptr) {
    check_race(agent, *allocation, to, bytes, true, true, site);
  }
  std::lock_guard lock(lock_of(to));
  write_global_flag(agent, to, order);
  std::memcpy(to, from, bytes);
}

void atomic_global(Agent& agent, void* address, uint32_t bytes, Order order, MemoryScope,
                   AtomicUpdate update, const Site& site) {
  Allocation* allocation = checked(agent, address, bytes, true, site);
  if (allocation != nullptr && memory_of(agent).grid != nullptr) {
    check_race(agent, *allocation, address, bytes, true, true, site);
  }
  {
    std::lock_guard lock(lock_of(address));
    read_global_flag(agent, address, order);
    write_global_flag(agent, address, order);
    update(address);
  }
  poll(agent, site);
}

}  // namespace halftone::sim

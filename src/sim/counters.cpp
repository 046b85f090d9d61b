#include "sim/counters.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/counter_state.h"

namespace halftone::sim {

namespace {

constexpr size_t kMostPending = 128;  // accesses of one site and warp whose lanes are awaited

ClusterCounters* counting() {
  const Cluster* cluster = running_cluster();
  return cluster != nullptr && cluster->counters->enabled ? cluster->counters : nullptr;
}

uint32_t phases(uint32_t mask, uint32_t bytes) {
  const uint32_t lanes = bytes <= 4 ? 32 : 128 / bytes;
  uint32_t count = 0;
  for (uint32_t first = 0; first < 32; first += lanes) {
    const uint32_t part = lanes == 32 ? ~0u : ((1u << lanes) - 1) << first;
    if ((mask & part) != 0) ++count;
  }
  return count;
}

void close(SharedSiteCount& site, const PendingAccesses::Access& access) {
  if (access.mask == 0) return;
  ++site.accesses;
  site.bytes += uint64_t{site.bytes_each} * static_cast<uint32_t>(std::popcount(access.mask));
  site.wavefronts += wavefronts(access.addresses, access.mask, site.bytes_each);
  site.ideal += phases(access.mask, site.bytes_each);
}

uint64_t key_of(const Site& site, const char* what) {
  return (uint64_t{site.line()} << 12 ^ site.column()) * 0x9e3779b97f4a7c15u ^
         reinterpret_cast<uintptr_t>(what) * 31 ^ reinterpret_cast<uintptr_t>(site.file_name());
}

}  // namespace

uint32_t wavefronts(const uint32_t* addresses, uint32_t mask, uint32_t bytes) {
  const uint32_t lanes = bytes <= 4 ? 32 : 128 / bytes;
  const uint32_t words = std::max(bytes / 4, 1u);
  uint32_t total = 0;
  for (uint32_t first = 0; first < 32; first += lanes) {
    uint32_t seen[32][32];
    uint8_t count[32] = {};
    uint32_t worst = 0;
    for (uint32_t lane = first; lane < first + lanes; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      for (uint32_t w = 0; w < words; ++w) {
        const uint32_t word = addresses[lane] / 4 + w, bank = word % 32;
        uint32_t* const in_bank = seen[bank];
        if (std::find(in_bank, in_bank + count[bank], word) != in_bank + count[bank]) continue;
        in_bank[count[bank]++] = word;
        worst = std::max<uint32_t>(worst, count[bank]);
      }
    }
    total += worst;
  }
  return total;
}

SharedSiteCount& ClusterCounters::site(const Site& site, const char* what, uint32_t bytes) {
  if (table.empty()) table.resize(256);
  const size_t mask = table.size() - 1;
  size_t at = (key_of(site, what) >> 20) & mask;
  for (; table[at] != 0; at = (at + 1) & mask) {
    SharedSiteCount& one = sites[table[at] - 1];
    if (one.site.line() == site.line() && one.site.column() == site.column() && one.what == what &&
        one.site.file_name() == site.file_name() && one.bytes_each == bytes) {
      return one;
    }
  }
  if (sites.size() * 2 >= table.size()) {
    std::vector<uint32_t> larger(table.size() * 2);
    for (uint32_t i = 0; i < sites.size(); ++i) {
      size_t to = (key_of(sites[i].site, sites[i].what) >> 20) & (larger.size() - 1);
      while (larger[to] != 0) to = (to + 1) & (larger.size() - 1);
      larger[to] = i + 1;
    }
    table = std::move(larger);
    return this->site(site, what, bytes);
  }
  sites.emplace_back();
  sites.back().site = site;
  sites.back().what = what;
  sites.back().bytes_each = bytes;
  table[at] = static_cast<uint32_t>(sites.size());
  return sites.back();
}

void ClusterCounters::flush() {
  for (SharedSiteCount& site : sites) {
    for (PendingAccesses& warp : site.warps) {
      for (const auto& access : warp.open) close(site, access);
      warp.open.clear();
    }
    site.warps.clear();
  }
}

void ClusterCounters::clear() {
  const bool on = enabled;
  *this = {};
  enabled = on;
}

void count_instruction(const char* name, uint64_t times) {
  if (ClusterCounters* counters = counting()) counters->instructions.add(name, times);
}

void count_multiply_adds(const char* kind, uint64_t multiply_adds) {
  if (ClusterCounters* counters = counting()) counters->multiply_adds.add(kind, multiply_adds);
}

void count_mufu(uint64_t operations) {
  if (ClusterCounters* counters = counting()) counters->mufu += operations;
}

void count_barrier_wait() {
  if (ClusterCounters* counters = counting()) ++counters->barrier_waits;
}

void count_shared(Thread& thread, uint32_t address, uint32_t bytes, const char* what,
                  const Site& where) {
  ClusterCounters& counters = *cluster_of(thread).counters;
  if (!counters.enabled) return;
  SharedSiteCount& site = counters.site(where, what, bytes);
  const size_t at = size_t{thread.block->rank} * 32 + thread.warp->index;
  if (site.warps.size() <= at) site.warps.resize(at + 1);
  PendingAccesses& warp = site.warps[at];
  const uint32_t lane = thread.lane;
  // A lane that has skipped older accesses (they were counted without it) joins the present one.
  warp.next[lane] = std::max(warp.next[lane], warp.first);
  const uint32_t index = warp.next[lane]++ - warp.first;
  if (index >= warp.open.size()) warp.open.emplace_back();
  auto& access = warp.open[index];
  access.mask |= 1u << lane;
  access.addresses[lane] = address;
  const uint32_t all = thread.warp->present & ~thread.warp->exited;
  if ((access.mask & all) != all && warp.open.size() < kMostPending) return;
  // Complete from the oldest on; when too many wait, half of them are taken as they are.
  size_t done = 0;
  while (done < warp.open.size() && (warp.open[done].mask & all) == all) ++done;
  if (warp.open.size() >= kMostPending) done = std::max(done, kMostPending / 2);
  for (size_t i = 0; i < done; ++i) close(site, warp.open[i]);
  warp.open.erase(warp.open.begin(), warp.open.begin() + static_cast<ptrdiff_t>(done));
  warp.first += static_cast<uint32_t>(done);
}

void count_shared_rows(const uint32_t rows[8], const char* what, const Site& where) {
  ClusterCounters* counters = counting();
  if (counters == nullptr) return;
  SharedSiteCount& site = counters->site(where, what, 16);
  uint32_t addresses[32] = {};
  std::copy_n(rows, 8, addresses);
  ++site.accesses;
  site.bytes += 128;
  site.wavefronts += wavefronts(addresses, 0xff, 16);
  ++site.ideal;
}

void count_async_shared(const Agent& agent, uint64_t bytes) {
  ClusterCounters& counters = *cluster_of(agent).counters;
  if (counters.enabled) counters.async_shared_bytes += bytes;
}

void count_global(const Agent& agent, const void* address, uint64_t bytes, bool write) {
  ClusterCounters& counters = *cluster_of(agent).counters;
  if (!counters.enabled || bytes == 0) return;
  const bool engine = agent.proxy != Proxy::generic;
  (engine ? (write ? counters.tma_written : counters.tma_read)
          : (write ? counters.global_written : counters.global_read)) += bytes;
  const Allocation* allocation = counters.last_allocation;
  if (allocation == nullptr || !allocation->contains(address, bytes)) {
    allocation = find_allocation(address);
    if (allocation == nullptr || !allocation->contains(address, bytes)) return;
    counters.last_allocation = allocation;
    allocation->any_touched.store(true, std::memory_order_relaxed);
  }
  const auto offset =
      static_cast<uint64_t>(static_cast<const uint8_t*>(address) - allocation->data);
  for (uint64_t sector = offset / 32; sector <= (offset + bytes - 1) / 32; ++sector) {
    std::atomic<uint64_t>& word = allocation->touched[sector / 64];
    const uint64_t bit = uint64_t{1} << (sector % 64);
    if ((word.load(std::memory_order_relaxed) & bit) != 0) continue;
    if ((word.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) counters.hbm_bytes += 32;
  }
}

}  // namespace halftone::sim

#include "sim/execution/arrivals.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/message.h"
#include "sim/execution/schedule.h"

namespace halftone::sim {

void Arrivals::arrived(const Thread* thread, const Site& site, uint32_t count) {
  const Warp* warp = thread == nullptr ? nullptr : thread->warp;
  for (Entry& entry : current_) {
    if (entry.warp != warp) continue;
    entry.count += count;
    entry.site = site;
    return;
  }
  current_.push_back({warp, count, site});
}

void Arrivals::completed() {
  std::swap(current_, previous_);
  current_.clear();
}

void Arrivals::clear() {
  current_.clear();
  previous_.clear();
}

namespace {

const char* role_of(const Warp& warp) {
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((warp.present >> lane & 1) != 0 && warp.threads[lane].role != nullptr) {
      return warp.threads[lane].role;
    }
  }
  return nullptr;
}

// Where the warp is now: the first of its threads that waits, or that it has returned.
std::string whereabouts(const Warp& warp) {
  if (warp.exited == warp.present) return "returned from the kernel";
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((warp.present >> lane & 1) == 0) continue;
    const Waiting* waiting = warp.threads[lane].waiting;
    if (waiting != nullptr) {
      return concat("now waiting in ", waiting->instruction(), " at ", to_string(waiting->site()));
    }
  }
  return "still running";
}

}  // namespace

std::string Arrivals::others(const void* key) const {
  const Cluster* cluster = running_cluster();
  if (cluster == nullptr) return {};
  std::string text;
  for (uint32_t b = 0; b < cluster->block_count; ++b) {
    const Block& block = cluster->blocks[b];
    const auto candidate = [&](const Warp& warp) {
      if (warp.exited == warp.present) return false;
      for (const Entry& entry : current_) {
        if (entry.warp == &warp) return false;
      }
      for (uint32_t left = warp.present; left != 0; left &= left - 1) {
        const Waiting* waiting = warp.threads[std::countr_zero(left)].waiting;
        if (waiting != nullptr && waiting->key() == key) return false;
      }
      return true;
    };
    for (uint32_t w = 0; w < block.warp_count;) {
      const Warp& first = block.warps[w];
      const std::string place = whereabouts(first);
      uint32_t end = w + 1;
      if (candidate(first)) {
        while (end < block.warp_count && candidate(block.warps[end]) &&
               role_of(block.warps[end]) == role_of(first) &&
               whereabouts(block.warps[end]) == place) {
          ++end;
        }
        text += text.empty() ? "" : ", ";
        text += end == w + 1 ? concat("warp ", w) : concat("warps ", w, "-", end - 1);
        if (cluster->block_count > 1) text += concat(" of rank ", b);
        if (const char* role = role_of(first)) text += concat(" (", role, ")");
        text += concat(", ", place);
      }
      w = end;
    }
  }
  return text;
}

std::string Arrivals::text(const void* key) const {
  const auto list = [](std::vector<Entry> entries, bool where) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      if (a.warp == nullptr || b.warp == nullptr) return a.warp < b.warp;
      if (a.warp->block->rank != b.warp->block->rank) {
        return a.warp->block->rank < b.warp->block->rank;
      }
      return a.warp->index < b.warp->index;
    });
    std::string text;
    for (size_t i = 0; i < entries.size();) {
      const Entry& first = entries[i];
      uint32_t count = first.count;
      size_t end = i + 1;
      const std::string place = where && first.warp != nullptr ? whereabouts(*first.warp) : "";
      // Neighbouring warps with one role and one site are one item.
      while (end < entries.size() && first.warp != nullptr && entries[end].warp != nullptr &&
             entries[end].warp->block == first.warp->block &&
             entries[end].warp->index == first.warp->index + (end - i) &&
             role_of(*entries[end].warp) == role_of(*first.warp) &&
             same_site(entries[end].site, first.site) &&
             (!where || whereabouts(*entries[end].warp) == place)) {
        count += entries[end++].count;
      }
      if (!text.empty()) text += ", ";
      if (first.warp == nullptr) {
        text += "asynchronous work";
      } else {
        text += end - i == 1
                    ? concat("warp ", first.warp->index)
                    : concat("warps ", first.warp->index, "-", first.warp->index + (end - i) - 1);
        if (first.warp->block->cluster->block_count > 1) {
          text += concat(" of rank ", first.warp->block->rank);
        }
        if (const char* role = role_of(*first.warp)) text += concat(" (", role, ")");
      }
      text +=
          concat(where ? ", which made " : " made ", count, count == 1 ? " arrival" : " arrivals",
                 where ? " then, last at " : " at ", to_string(first.site));
      if (!place.empty()) text += concat(" and is ", place);
      i = end;
    }
    return text;
  };

  std::vector<Entry> missing;
  for (const Entry& before : previous_) {
    const auto now = std::find_if(current_.begin(), current_.end(),
                                  [&](const Entry& e) { return e.warp == before.warp; });
    const uint32_t done = now == current_.end() ? 0 : now->count;
    if (done < before.count) missing.push_back({before.warp, before.count - done, before.site});
  }
  std::string text = current_.empty() ? "no arrival in this phase"
                                      : concat("in this phase ", list(current_, false));
  if (!missing.empty()) {
    text.append("; missing, by the phase before: ").append(list(missing, true));
  } else if (previous_.empty()) {
    text += "; no phase has completed yet";
    const std::string others_text = key == nullptr ? std::string() : others(key);
    if (!others_text.empty()) text.append("; could still arrive: ").append(others_text);
  }
  return text;
}

}  // namespace halftone::sim

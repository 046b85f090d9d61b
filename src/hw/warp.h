// Instructions of a warp: shuffles, votes, matches, reductions. Every lane of the mask calls them.
#pragma once
#include <bit>
#include <cstdint>

#include "hw/mnemonic.h"
#include "hw/types.h"
#if !defined(__CUDACC__)
#include "sim/sim.h"
#endif

namespace halftone::hw {

inline constexpr uint32_t kFullWarp = 0xffffffff;

// Waits for the lanes of the mask; orders their accesses to memory.
HT_DEVICE void warp_sync(uint32_t mask = kFullWarp, Site site = Site::current()) {
#if HT_GPU
  asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory");
#elif !defined(__CUDACC__)
  sim::warp_sync(mask, site);
#endif
}

#if !defined(__CUDACC__)
namespace model {
// `source(lane, operand, first, last)` is the lane whose register `lane` reads, given its segment
// of the warp. A source that takes no part has no value: undefined on the GPU.
struct Shuffle {
  uint32_t value, operand, width, result;
};
template <class Source>
uint32_t shuffle(const char* name, uint32_t value, uint32_t operand, uint32_t width, uint32_t mask,
                 Source source, const Site& site) {
  Shuffle mine{value, operand, width, 0};
  sim::warp_collective(
      name, mask, mine,
      [&](const sim::Lanes<Shuffle>& lanes) {
        for (const uint32_t lane : lanes) {
          const uint32_t first = lane & ~(lanes[lane].width - 1);
          const uint32_t at =
              source(lane, lanes[lane].operand & 31, first, first + lanes[lane].width - 1);
          if (!lanes.has(at)) {
            sim::report(sim::self(), sim::Level::error, "shuffle.source", site, name,
                        "lane " + std::to_string(lane) + " reads lane " + std::to_string(at) +
                            ", which is not in the mask",
                        "include the lane in the mask");
            lanes[lane].result = 0xffffffff;
            continue;
          }
          lanes[lane].result = lanes[at].value;
        }
      },
      site, {{{"width", width}}});
  return mine.result;
}
}  // namespace model
#endif

// The operand `c` of shfl: segments of `width` lanes (a power of two) and the lane that bounds
// them.
HT_HOST_DEVICE uint32_t shuffle_bound(uint32_t width, uint32_t last) {
  return (32 - width) << 8 | last;
}

// The value of lane `source` of the segment.
template <class T>
HT_DEVICE T shuffle(T value, uint32_t source, uint32_t width = 32, uint32_t mask = kFullWarp,
                    Site site = Site::current()) {
  static_assert(sizeof(T) == 4, "a shuffle moves one register");
  T result{};
#if HT_GPU
  uint32_t bits;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, %3, %4;"
               : "=r"(bits)
               : "r"(std::bit_cast<uint32_t>(value)), "r"(source), "r"(shuffle_bound(width, 31)),
                 "r"(mask));
  result = std::bit_cast<T>(bits);
#elif !defined(__CUDACC__)
  result = std::bit_cast<T>(model::shuffle(
      "shfl.sync.idx", std::bit_cast<uint32_t>(value), source, width, mask,
      [](uint32_t, uint32_t operand, uint32_t first, uint32_t last) {
        return first | (operand & (last - first));
      },
      site));
#endif
  return result;
}

// The value of the lane whose number differs by `lane_mask` (exclusive or).
template <class T>
HT_DEVICE T shuffle_xor(T value, uint32_t lane_mask, uint32_t width = 32, uint32_t mask = kFullWarp,
                        Site site = Site::current()) {
  static_assert(sizeof(T) == 4, "a shuffle moves one register");
  T result{};
#if HT_GPU
  uint32_t bits;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, %3, %4;"
               : "=r"(bits)
               : "r"(std::bit_cast<uint32_t>(value)), "r"(lane_mask), "r"(shuffle_bound(width, 31)),
                 "r"(mask));
  result = std::bit_cast<T>(bits);
#elif !defined(__CUDACC__)
  result = std::bit_cast<T>(model::shuffle(
      "shfl.sync.bfly", std::bit_cast<uint32_t>(value), lane_mask, width, mask,
      [](uint32_t lane, uint32_t operand, uint32_t, uint32_t last) {
        return (lane ^ operand) <= last ? lane ^ operand : lane;  // lower segments can be read
      },
      site));
#endif
  return result;
}

// The value of the lane `distance` below; the first lanes of a segment keep their own.
template <class T>
HT_DEVICE T shuffle_up(T value, uint32_t distance, uint32_t width = 32, uint32_t mask = kFullWarp,
                       Site site = Site::current()) {
  static_assert(sizeof(T) == 4, "a shuffle moves one register");
  T result{};
#if HT_GPU
  uint32_t bits;
  asm volatile("shfl.sync.up.b32 %0, %1, %2, %3, %4;"
               : "=r"(bits)
               : "r"(std::bit_cast<uint32_t>(value)), "r"(distance), "r"(shuffle_bound(width, 0)),
                 "r"(mask));
  result = std::bit_cast<T>(bits);
#elif !defined(__CUDACC__)
  result = std::bit_cast<T>(model::shuffle(
      "shfl.sync.up", std::bit_cast<uint32_t>(value), distance, width, mask,
      [](uint32_t lane, uint32_t operand, uint32_t first, uint32_t) {
        return lane >= first + operand ? lane - operand : lane;
      },
      site));
#endif
  return result;
}

// The value of the lane `distance` above; the last lanes of a segment keep their own.
template <class T>
HT_DEVICE T shuffle_down(T value, uint32_t distance, uint32_t width = 32, uint32_t mask = kFullWarp,
                         Site site = Site::current()) {
  static_assert(sizeof(T) == 4, "a shuffle moves one register");
  T result{};
#if HT_GPU
  uint32_t bits;
  asm volatile("shfl.sync.down.b32 %0, %1, %2, %3, %4;"
               : "=r"(bits)
               : "r"(std::bit_cast<uint32_t>(value)), "r"(distance), "r"(shuffle_bound(width, 31)),
                 "r"(mask));
  result = std::bit_cast<T>(bits);
#elif !defined(__CUDACC__)
  result = std::bit_cast<T>(model::shuffle(
      "shfl.sync.down", std::bit_cast<uint32_t>(value), distance, width, mask,
      [](uint32_t lane, uint32_t operand, uint32_t, uint32_t last) {
        return lane + operand <= last ? lane + operand : lane;
      },
      site));
#endif
  return result;
}

}  // namespace halftone::hw

// Votes, matches and integer reductions of a warp. Every lane of the mask calls them and gets the
// result.
#pragma once
#include <type_traits>

#include "hw/warp.h"

namespace halftone::hw {

#if !defined(__CUDACC__)
namespace model {
struct Vote {
  bool predicate;
  uint32_t ballot;
};
// The lanes whose predicate holds.
inline uint32_t ballot(const char* name, bool predicate, uint32_t mask, const Site& site) {
  Vote mine{predicate, 0};
  sim::warp_collective(
      name, mask, mine,
      [](const sim::Lanes<Vote>& lanes) {
        uint32_t ballot = 0;
        for (const uint32_t lane : lanes) ballot |= uint32_t{lanes[lane].predicate} << lane;
        for (const uint32_t lane : lanes) lanes[lane].ballot = ballot;
      },
      site);
  return mine.ballot;
}
}  // namespace model
#endif

HT_DEVICE uint32_t vote_ballot(bool predicate, uint32_t mask = kFullWarp,
                               Site site = Site::current()) {
  uint32_t lanes = 0;
#if HT_GPU
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\nvote.sync.ballot.b32 %0, p, %2;\n}"
               : "=r"(lanes)
               : "r"(uint32_t{predicate}), "r"(mask));
#elif !defined(__CUDACC__)
  lanes = model::ballot("vote.sync.ballot", predicate, mask, site);
#endif
  return lanes;
}

HT_DEVICE bool vote_any(bool predicate, uint32_t mask = kFullWarp, Site site = Site::current()) {
  uint32_t holds = 0;
#if HT_GPU
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nvote.sync.any.pred q, p, %2;\n"
      "selp.u32 %0, 1, 0, q;\n}"
      : "=r"(holds)
      : "r"(uint32_t{predicate}), "r"(mask));
#elif !defined(__CUDACC__)
  holds = model::ballot("vote.sync.any", predicate, mask, site) != 0;
#endif
  return holds != 0;
}

HT_DEVICE bool vote_all(bool predicate, uint32_t mask = kFullWarp, Site site = Site::current()) {
  uint32_t holds = 0;
#if HT_GPU
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nvote.sync.all.pred q, p, %2;\n"
      "selp.u32 %0, 1, 0, q;\n}"
      : "=r"(holds)
      : "r"(uint32_t{predicate}), "r"(mask));
#elif !defined(__CUDACC__)
  holds = model::ballot("vote.sync.all", !predicate, mask, site) == 0;
#endif
  return holds != 0;
}

// Whether the predicate is the same in all lanes.
HT_DEVICE bool vote_uniform(bool predicate, uint32_t mask = kFullWarp,
                            Site site = Site::current()) {
  uint32_t holds = 0;
#if HT_GPU
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nvote.sync.uni.pred q, p, %2;\n"
      "selp.u32 %0, 1, 0, q;\n}"
      : "=r"(holds)
      : "r"(uint32_t{predicate}), "r"(mask));
#elif !defined(__CUDACC__)
  const uint32_t lanes = model::ballot("vote.sync.uni", predicate, mask, site);
  holds = lanes == 0 || lanes == mask;
#endif
  return holds != 0;
}

// The lanes that hold the same value.
HT_DEVICE uint32_t match_any(uint32_t value, uint32_t mask = kFullWarp,
                             Site site = Site::current()) {
  uint32_t lanes_alike = 0;
#if HT_GPU
  asm volatile("match.any.sync.b32 %0, %1, %2;" : "=r"(lanes_alike) : "r"(value), "r"(mask));
#elif !defined(__CUDACC__)
  struct Match {
    uint32_t value, alike;
  } mine{value, 0};
  sim::warp_collective(
      "match.any.sync", mask, mine,
      [](const sim::Lanes<Match>& lanes) {
        for (const uint32_t i : lanes)
          for (const uint32_t j : lanes)
            lanes[i].alike |= uint32_t{lanes[i].value == lanes[j].value} << j;
      },
      site);
  lanes_alike = mine.alike;
#endif
  return lanes_alike;
}

// The mask if all lanes hold the same value, else 0.
HT_DEVICE uint32_t match_all(uint32_t value, uint32_t mask = kFullWarp,
                             Site site = Site::current()) {
  uint32_t lanes_alike = 0;
#if HT_GPU
  asm volatile("{\n.reg .pred p;\nmatch.all.sync.b32 %0|p, %1, %2;\n}"
               : "=r"(lanes_alike)
               : "r"(value), "r"(mask));
#elif !defined(__CUDACC__)
  struct Match {
    uint32_t value, alike;
  } mine{value, 0};
  sim::warp_collective(
      "match.all.sync", mask, mine,
      [](const sim::Lanes<Match>& lanes) {
        bool same = true;
        for (const uint32_t i : lanes) same &= lanes[i].value == lanes[*lanes.begin()].value;
        for (const uint32_t i : lanes) lanes[i].alike = same ? lanes.mask() : 0;
      },
      site);
  lanes_alike = mine.alike;
#endif
  return lanes_alike;
}

enum class Reduction : uint8_t { add, min, max, and_, or_, xor_ };

template <Reduction kReduction>
constexpr auto redux_name() {
  if constexpr (kReduction == Reduction::add) return Text("redux.sync.add");
  if constexpr (kReduction == Reduction::min) return Text("redux.sync.min");
  if constexpr (kReduction == Reduction::max) return Text("redux.sync.max");
  if constexpr (kReduction == Reduction::and_) return Text("redux.sync.and");
  if constexpr (kReduction == Reduction::or_) return Text("redux.sync.or");
  if constexpr (kReduction == Reduction::xor_) return Text("redux.sync.xor");
}
template <Reduction kReduction, class T>
constexpr T reduce(T a, T b) {
  if constexpr (kReduction == Reduction::add) {
    return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
  if constexpr (kReduction == Reduction::min) return a < b ? a : b;
  if constexpr (kReduction == Reduction::max) return a > b ? a : b;
  if constexpr (kReduction == Reduction::and_) return a & b;
  if constexpr (kReduction == Reduction::or_) return a | b;
  if constexpr (kReduction == Reduction::xor_) return a ^ b;
}

// The reduction of `value` over the lanes: uint32_t, or int32_t for add, min and max.
template <Reduction kReduction, class T>
HT_DEVICE T redux(T value, uint32_t mask = kFullWarp, Site site = Site::current()) {
  constexpr bool kBits = kReduction >= Reduction::and_;
  static_assert(sizeof(T) == 4 && !std::is_floating_point_v<T>, "redux.sync reduces integers");
  T result{};
#if HT_GPU
  asm volatile("%3.%4 %0, %1, %2;"
               : "=r"(result)
               : "r"(value), "r"(mask), "C"(Mnemonic<redux_name<kReduction>()>::text),
                 "C"(TypeName < kBits ? Type::b32 : TypeOf<T>::value > ::text));
#elif !defined(__CUDACC__)
  static_cast<void>(kBits);
  struct Redux {
    T value, result;
  } mine{value, {}};
  sim::warp_collective(
      Mnemonic<redux_name<kReduction>()>::text, mask, mine,
      [](const sim::Lanes<Redux>& lanes) {
        T sum = lanes[*lanes.begin()].value;
        bool first = true;
        for (const uint32_t i : lanes) {
          if (!first) sum = reduce<kReduction>(sum, lanes[i].value);
          first = false;
        }
        for (const uint32_t i : lanes) lanes[i].result = sum;
      },
      site);
  result = mine.result;
#endif
  return result;
}

}  // namespace halftone::hw

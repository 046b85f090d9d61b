// Instructions that a warp or a warpgroup executes together.
//
// Each lane passes its own operands by reference and sleeps; the last to arrive runs the model once
// over all of them, and every lane goes on with its operands as the model left them:
//   struct Operands { uint32_t value, source, result; } mine{...};
//   sim::warp_collective("shfl.sync.idx", mask, mine,
//       [](const sim::Lanes<Operands>& lanes) { for (uint32_t i : lanes) lanes[i].result = ...; },
//       site);
// The model captures nothing that differs between lanes: it is the last lane's. What must be the
// same in all lanes goes into `Uniform`, and is checked.
// Checked as well: the same call site and instruction, convergence, lanes that have returned.
#pragma once
#include <bit>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "sim/execution/thread.h"

namespace halftone::sim {

inline constexpr uint32_t kFullMask = 0xffffffffu;

// Up to four operands that every lane must pass alike: {{"columns", n}, {"address", a}}.
struct Uniform {
  struct Item {
    const char* name = nullptr;
    uint64_t value = 0;
  } items[4];
};

// Operands of the lanes that take part; lanes[i] only for lanes in the mask.
template <class Operands>
class Lanes {
 public:
  Lanes(void* const* operands, uint32_t mask) : operands_(operands), mask_(mask) {}
  Operands& operator[](uint32_t lane) const { return *static_cast<Operands*>(operands_[lane]); }
  uint32_t mask() const { return mask_; }
  bool has(uint32_t lane) const { return lane < 32 && (mask_ >> lane & 1) != 0; }

  struct Iterator {
    uint32_t left;
    uint32_t operator*() const { return static_cast<uint32_t>(std::countr_zero(left)); }
    Iterator& operator++() { return left &= left - 1, *this; }
    bool operator!=(const Iterator& other) const { return left != other.left; }
  };
  Iterator begin() const { return {mask_}; }
  Iterator end() const { return {0}; }

 private:
  void* const* operands_;
  uint32_t mask_;
};

// Operands of the 128 threads of a warpgroup.
template <class Operands>
class GroupLanes {
 public:
  explicit GroupLanes(void* const* operands) : operands_(operands) {}
  Operands& operator[](uint32_t thread) const { return *static_cast<Operands*>(operands_[thread]); }
  static constexpr uint32_t size() { return 128; }

 private:
  void* const* operands_;
};

namespace detail {
// Runs model(lanes, mask) by the last arrival; one call is one instruction.
using CollectiveModel = void (*)(void* model, void* const* operands, uint32_t mask);
void warp_rendezvous(const char* instruction, uint32_t mask, void* operands, CollectiveModel,
                     void* model, const Site&, const Uniform&);
void warpgroup_rendezvous(const char* instruction, void* operands, CollectiveModel, void* model,
                          const Site&, const Uniform&);
}  // namespace detail

template <class Operands, class Model>
void warp_collective(const char* instruction, uint32_t mask, Operands& mine, Model model,
                     const Site& site, const Uniform& uniform = {}) {
  detail::warp_rendezvous(
      instruction, mask, &mine,
      [](void* f, void* const* operands, uint32_t lanes) {
        (*static_cast<Model*>(f))(Lanes<Operands>(operands, lanes));
      },
      &model, site, uniform);
}

// The four warps of threads 128 g .. 128 g + 127.
template <class Operands, class Model>
void warpgroup_collective(const char* instruction, Operands& mine, Model model, const Site& site,
                          const Uniform& uniform = {}) {
  detail::warpgroup_rendezvous(
      instruction, &mine,
      [](void* f, void* const* operands, uint32_t) {
        (*static_cast<Model*>(f))(GroupLanes<Operands>(operands));
      },
      &model, site, uniform);
}

// bar.warp.sync: also orders the lanes' memory accesses.
void warp_sync(uint32_t mask, const Site&);
// The leader of elect.sync: any lane of the mask, the same for all of them; varies with the seed.
uint32_t elect_leader(uint32_t mask, const Site&);

}  // namespace halftone::sim

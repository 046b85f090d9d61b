// Warp roles: which warps of a block do what, and how many registers each may use.
//
//   enum class Worker { load, multiply };
//   static constexpr pipe::Roles kRoles{{{"load", 4, 40}, {"multiply", 8, 232}}};
//   static constexpr uint32_t kThreads = kRoles.threads(), kMinBlocks = 1;
//   static_assert(kRoles.broken_rule(kMinBlocks) == nullptr);
//   ...
//   if (pipe::enter<kRoles, Worker::load>()) load(...);
//   else if (pipe::enter<kRoles, Worker::multiply>()) multiply(...);
#pragma once
#include "hw/mma/setmaxnreg.h"
#include "hw/thread.h"
#include "pipe/uniform.h"

namespace halftone::pipe {

struct Role {
  char name[24] = {};  // in reports of the simulator
  uint32_t warps = 0;
  uint32_t registers = 0;  // per thread; 0 keeps those of the launch

  constexpr Role() = default;
  template <uint32_t kSize>
  constexpr Role(const char (&text)[kSize], uint32_t warp_count, uint32_t budget = 0)
      : warps(warp_count), registers(budget) {
    static_assert(kSize <= sizeof(name), "a role's name has at most 23 letters");
    for (uint32_t i = 0; i < kSize; ++i) name[i] = text[i];
  }
};

inline constexpr uint32_t kRegistersPerMultiprocessor = 65536;  // of every architecture here

template <uint32_t kCount>
struct Roles {
  Role list[kCount];

  HT_HOST_DEVICE uint32_t warps() const { return first_warp(kCount); }
  HT_HOST_DEVICE uint32_t threads() const { return warps() * 32; }
  HT_HOST_DEVICE uint32_t first_warp(uint32_t role) const {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < role; ++i) sum += list[i].warps;
    return sum;
  }
  HT_HOST_DEVICE uint32_t role_of(uint32_t warp) const {
    uint32_t role = 0;
    while (role + 1 < kCount && warp >= first_warp(role + 1)) ++role;
    return role;
  }

  // What a thread has at the launch: the bound that __launch_bounds__(threads, min_blocks) gives
  // ptxas, a multiple of 8.
  HT_HOST_DEVICE uint32_t launch_registers(uint32_t min_blocks) const {
    const uint32_t fair = kRegistersPerMultiprocessor / (threads() * min_blocks) / 8 * 8;
    return fair < 248 ? fair : 248;
  }

  // The broken rule, or null. setmaxnreg moves whole warpgroups between 24 and 256 registers in
  // steps of 8, and one that asks for more than the others have given back waits for ever.
  HT_HOST_DEVICE const char* broken_rule(uint32_t min_blocks) const {
    if (threads() > 1024) return "a block has at most 32 warps";
    uint32_t asked = 0;
    for (uint32_t i = 0; i < kCount; ++i) {
      const Role& r = list[i];
      if (r.warps == 0) return "a role has one warp at least";
      asked += r.warps * (r.registers == 0 ? launch_registers(min_blocks) : r.registers);
      if (r.registers == 0) continue;
      if (r.registers < 24 || r.registers > 256 || r.registers % 8 != 0)
        return "registers are a multiple of 8 from 24 to 256";
      const uint32_t first = first_warp(i) / 4 * 4, end = (first_warp(i) + r.warps + 3) / 4 * 4;
      if (end > warps()) return "roles with registers of their own fill whole warpgroups";
      for (uint32_t w = first; w < end; ++w) {
        if (list[role_of(w)].registers != r.registers)
          return "roles that share a warpgroup have the same registers";
      }
    }
    if (asked > warps() * launch_registers(min_blocks))
      return "the roles ask for more registers than the launch has";
    return nullptr;
  }
};
template <uint32_t kCount>
Roles(const Role (&)[kCount]) -> Roles<kCount>;

// True for the warps of a role, which take their registers on the way in. Every warp of the block
// asks for its own role once. kUniform: ptxas is told that a warp is of one role as a whole.
template <auto kRoles, auto kRole, uint32_t kMinBlocks = 1, bool kUniform = true>
HT_DEVICE bool enter(hw::Site site = hw::Site::current()) {
  constexpr uint32_t role = static_cast<uint32_t>(kRole);
  constexpr uint32_t first = kRoles.first_warp(role), warps = kRoles.list[role].warps;
  constexpr uint32_t registers = kRoles.list[role].registers;
  constexpr uint32_t launched = kRoles.launch_registers(kMinBlocks);
  static_assert(kRoles.broken_rule(kMinBlocks) == nullptr);
  const uint32_t warp = kUniform ? uniform(hw::warp_index(site), site) : hw::warp_index(site);
  if (warp - first >= warps) return false;  // unsigned: also those before
  hw::set_role(kRoles.list[role].name, site);
  if constexpr (registers != 0 && registers < launched) {
    hw::setmaxnreg_dec<registers>(site);
  } else if constexpr (registers > launched) {
    hw::setmaxnreg_inc<registers>(site);
  }
  return true;
}

}  // namespace halftone::pipe

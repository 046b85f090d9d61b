// setmaxnreg, fences, and what is fixed by the target: each where it exists and refused elsewhere.
#include <gtest/gtest.h>

#include "hw/fence.h"
#include "hw/griddep.h"
#include "hw/kernels.h"
#include "hw/memory.h"
#include "hw/mma/setmaxnreg.h"
#include "hw/thread.h"

namespace halftone::test {
namespace {

// 384 threads at 168 registers: two warpgroups take 240 once the third has given up all but 24.
TEST(Resources, RegistersMoveBetweenWarpgroups) {
  for (const Arch arch : {Arch::sm_90a, Arch::sm_100a, Arch::sm_120a}) {
    run_everywhere(arch, {.block = {384}}, [](sim::Thread& me) {
      if (me.index < 128) {
        hw::setmaxnreg_dec<24>();
      } else {
        hw::setmaxnreg_inc<240>();
      }
    });
    // 248 for both are more than what the first gave.
    const SimulatorReport report = violations(
        {.block = {384}},
        [](sim::Thread& me) {
          if (me.index < 128) {
            hw::setmaxnreg_dec<24>();
          } else {
            hw::setmaxnreg_inc<248>();
          }
        },
        {}, arch);
    EXPECT_NE(to_string(report).find("setmaxnreg"), std::string::npos);
    EXPECT_FALSE(report.clean());
  }
  EXPECT_TRUE(refused(
      Arch::sm_89, [] { hw::setmaxnreg_dec<24>(); }, 128));
}

TEST(Resources, FencesExistWhereTheirProxiesDo) {
  for (const Arch arch : kArchs) {
    run_everywhere(arch, {.block = {32}, .shared_bytes = 64}, [](sim::Thread&) {
      hw::fence_acq_rel<hw::Scope::cta>();
      hw::fence_acq_rel<hw::Scope::gpu>();
      hw::fence_sc<hw::Scope::sys>();
    });
    const bool has = arch >= Arch::sm_90a;
    EXPECT_EQ(refused(arch, [] { hw::fence_proxy_async(); }), !has);
    EXPECT_EQ(refused(arch, [] { hw::fence_proxy_async_shared(); }), !has);
    EXPECT_EQ(refused(arch, [] { hw::fence_proxy_async_global(); }), !has);
    EXPECT_EQ(refused(arch, [] { hw::fence_mbarrier_init(); }), !has);
    EXPECT_EQ(refused(arch, [] { hw::fence_tensormap_release(); }), !has);
    EXPECT_EQ(refused(arch, [] { hw::fence_tensormap_acquire(nullptr); }), !has);
    EXPECT_EQ(refused(arch, [] { hw::griddepcontrol_wait(); }), !has);
    EXPECT_EQ(refused(arch, [] { hw::griddepcontrol_launch_dependents(); }), !has);
  }
}

// Relaxed accesses around fences hand data over; without the fences they do not.
TEST(Resources, FencesOrder) {
  DeviceArray<uint32_t> memory(Arch::sm_90a, 2);
  const auto hand_over = [&](bool fences) {
    memory[0] = 0;
    return violations({.grid = {2}, .block = {32}}, [&](sim::Thread& me) {
      using hw::Order;
      if (me.index != 0) return;
      if (hw::block_index().x == 0) {
        hw::store_global(memory.data() + 1, 5u);
        if (fences) hw::fence_acq_rel<hw::Scope::gpu>();
        hw::store_global_ordered<Order::relaxed>(memory.data(), 1u);
      } else {
        while (hw::load_global_ordered<uint32_t, Order::relaxed>(memory.data()) == 0) {
          hw::nanosleep(50);
        }
        if (fences) hw::fence_acq_rel<hw::Scope::gpu>();
        EXPECT_EQ(hw::load_global(memory.data() + 1), 5u);
      }
    });
  };
  const SimulatorReport fenced = hand_over(true);
  EXPECT_TRUE(fenced.clean()) << to_string(fenced);
  EXPECT_FALSE(hand_over(false).clean());
}

TEST(Resources, Traps) {
  const SimulatorReport report = violations({.block = {32}}, [](sim::Thread& me) {
    if (me.index == 5) hw::trap();
  });
  EXPECT_NE(find(report, "trap"), nullptr);
}

TEST(Resources, RolesAreNamedInReports) {
  const SimulatorReport report = violations({.block = {32}}, [](sim::Thread& me) {
    hw::set_role("producer");
    if (me.index == 5) hw::trap();
  });
  EXPECT_NE(to_string(report).find("producer"), std::string::npos);
}

}  // namespace
}  // namespace halftone::test

#include "pipe/roles.h"

#include <gtest/gtest.h>

#include <string>

#include "pipe/named_barrier.h"

namespace halftone::pipe {
namespace {

constexpr Roles kTwo{{{"load", 4, 40}, {"multiply", 8, 232}}};
static_assert(kTwo.threads() == 384 && kTwo.first_warp(1) == 4);
static_assert(kTwo.role_of(3) == 0 && kTwo.role_of(4) == 1 && kTwo.role_of(11) == 1);
static_assert(kTwo.launch_registers(1) == 168);  // 65536 / 384 = 170.7
static_assert(kTwo.broken_rule(1) == nullptr);

template <uint32_t kCount>
std::string rule(const Roles<kCount>& roles, uint32_t min_blocks = 1) {
  const char* broken = roles.broken_rule(min_blocks);
  return broken == nullptr ? "" : broken;
}

TEST(Roles, BudgetsOfKnownKernels) {
  EXPECT_EQ(rule(Roles{{{"load", 4, 24}, {"multiply", 12, 160}}}), "");
  EXPECT_EQ(rule(Roles{{{"load", 4, 40}, {"multiply", 8, 240}}}),
            "the roles ask for more registers than the launch has");
  // 11264 asked of 10752: an idle warpgroup that gives nothing back.
  EXPECT_EQ(rule(Roles{{{"idle", 4}, {"load", 4, 24}, {"multiply", 4, 256}}}), "");
  EXPECT_NE(rule(Roles{{{"idle", 4}, {"multiply", 8, 232}}}), "");
  EXPECT_EQ(rule(Roles{{{"load", 1}, {"mma", 1}, {"epilogue", 4}}}), "");
}

TEST(Roles, NamesTheBrokenRule) {
  EXPECT_NE(rule(Roles{{{"a", 4, 36}, {"b", 4, 64}}}).find("multiple of 8"), std::string::npos);
  EXPECT_NE(rule(Roles{{{"a", 4, 16}, {"b", 4, 64}}}).find("from 24"), std::string::npos);
  EXPECT_NE(rule(Roles{{{"a", 1, 40}, {"b", 4, 40}}}).find("whole warpgroups"), std::string::npos);
  EXPECT_NE(rule(Roles{{{"a", 1, 40}, {"b", 3, 48}}}).find("share"), std::string::npos);
  EXPECT_NE(rule(Roles{{{"a", 4}, {"b", 0}}}).find("one warp"), std::string::npos);
  EXPECT_NE(rule(Roles{{{"a", 33}}}).find("32 warps"), std::string::npos);
  EXPECT_EQ(rule(Roles{{{"load", 1, 40}, {"store", 3, 40}, {"multiply", 8, 232}}}), "");
  EXPECT_NE(rule(kTwo, 2), "");  // two blocks share the registers
}

enum class Barrier { turn0, turn1, epilogue, count };
static_assert(barrier_number<Barrier::turn0>() == 1);
static_assert(barrier_number<Barrier::epilogue>() == 3);

}  // namespace
}  // namespace halftone::pipe

// A rule of the simulator as two forms of a small kernel: the broken one is reported, with the
// right places, under every schedule; the fixed one is clean in strict under 20 seeds of the
// adversarial schedule.
#pragma once
#include <algorithm>
#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/kernels.h"
#include "sim/memory/device_memory.h"
#include "sim/memory/memory.h"
#include "sim/rules.h"

namespace halftone::test {

using namespace sim;  // the kernels are written on it

// Lines that the report must name: `at(1)` marks the line it stands on.
inline std::set<uint32_t>& marked_lines() {
  static std::set<uint32_t> lines;
  return lines;
}
inline Site at(int marks = 0, Site site = Site::current()) {
  if (marks != 0) marked_lines().insert(site.line());
  return site;
}

struct RuleCase {
  const char* name;
  const char* rule;  // or several, "a|b": which one depends on who comes first
  LaunchShape shape;
  std::function<void(Thread&, bool fixed)> body;
  Arch arch = Arch::sm_90a;
  uint32_t min_blocks = 1;
};
inline void PrintTo(const RuleCase& c, std::ostream* out) { *out << c.name; }

template <class T>
struct DeviceArray {
  explicit DeviceArray(size_t n) : data(static_cast<T*>(allocate(Arch::sm_90a, n * sizeof(T)))) {
    std::fill_n(data, n, T{});
  }
  ~DeviceArray() { deallocate(data); }
  T* data;
};

// Global memory that the kernels below use as they like.
inline uint32_t* scratch() {
  static DeviceArray<uint32_t> memory(65536);
  return memory.data;
}

inline uint32_t base_of(const Thread& me) { return shared_memory_base(*me.block); }
inline void wait(Thread& me, uint32_t barrier, uint32_t parity, Site site = Site::current(),
                 MemoryScope scope = MemoryScope::cta) {
  while (!mbarrier_try_wait(me, barrier, parity, Order::acquire, scope, site)) {
  }
}
inline void block_sync(Site site = Site::current()) { barrier_sync(0, 0, site); }
// One thread makes the barriers, everybody may use them afterwards.
inline void make_barriers(Thread& me, std::vector<std::pair<uint32_t, uint32_t>> barriers,
                          bool fence = true, Site site = Site::current()) {
  if (me.index == 0) {
    for (const auto& [address, count] : barriers) mbarrier_init(me, address, count, site);
    if (fence) fence_mbarrier_init(me, site);
  }
  barrier_sync(0, 0, site);
}

inline const SimulatorViolation* find_any(const SimulatorReport& report, std::string rules) {
  rules += '|';
  for (size_t at = 0; at < rules.size(); at = rules.find('|', at) + 1) {
    const auto* found = find(report, rules.substr(at, rules.find('|', at) - at));
    if (found != nullptr) return found;
  }
  return nullptr;
}

inline void check_case(const RuleCase& c) {
  const auto run_form = [&](bool fixed, Options options) {
    // On one processor thread: where blocks race in the kernel, they would race in this program
    // too.
    return violations(
        c.shape, [&](Thread& me) { c.body(me, fixed); }, options, c.arch, c.min_blocks, 1);
  };
  const auto strict = Options::Severity::strict;
#ifdef HALFTONE_SANITIZED
  constexpr uint64_t kSeeds = 3;
#else
  constexpr uint64_t kSeeds = 20;
#endif
  for (const auto schedule : kSchedules) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      marked_lines().clear();
      const SimulatorReport report =
          run_form(false, {.severity = strict, .schedule = schedule, .seed = seed});
      const SimulatorViolation* found = find_any(report, c.rule);
      ASSERT_NE(found, nullptr) << c.rule << " not among\n" << to_string(report, false);
      EXPECT_NE(find_rule(found->rule), nullptr) << found->rule << " is not in sim/rules.h";
      std::set<uint32_t> named;
      for (const SimulatorAccess& access : found->accesses) named.insert(access.line);
      for (const uint32_t line : marked_lines()) {
        EXPECT_TRUE(named.count(line)) << "line " << line << " missing in\n" << to_string(*found);
      }
      if (schedule == Options::Schedule::fifo) break;
    }
  }
  for (uint64_t seed = 0; seed <= kSeeds; ++seed) {
    const SimulatorReport report = run_form(
        true, {.severity = strict,
               .schedule = seed == 0 ? Options::Schedule::fifo : Options::Schedule::adversarial,
               .seed = seed});
    ASSERT_TRUE(report.clean()) << "fixed form, seed " << seed << "\n" << to_string(report, false);
  }
}

#define HALFTONE_RULE_CASES(Suite, cases)                                 \
  class Suite : public testing::TestWithParam<RuleCase> {};               \
  TEST_P(Suite, BrokenIsReportedFixedIsClean) { check_case(GetParam()); } \
  INSTANTIATE_TEST_SUITE_P(Rules, Suite, testing::ValuesIn(cases),        \
                           [](const auto& info) { return std::string(info.param.name); })

}  // namespace halftone::test

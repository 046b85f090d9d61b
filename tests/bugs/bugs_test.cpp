// Every bug of the catalogue is reported with the right lines; every fixed form is clean.
#include <gtest/gtest.h>

#include <ostream>
#include <set>
#include <string>

#include "bug.h"

namespace halftone::bugs {

void PrintTo(const Bug& bug, std::ostream* out) { *out << bug.name; }

namespace {

class Catalogue : public testing::TestWithParam<Bug> {};

TEST_P(Catalogue, IsReportedAndMends) {
  const Bug& bug = GetParam();
  constexpr int kSeeds = 20;
  const Verdict verdict = judge(bug, kSeeds);
  EXPECT_TRUE(verdict.reported) << "rule " << bug.rule << " is not in:\n" << verdict.report;
  EXPECT_TRUE(verdict.source_read) << "no line is marked [" << bug.name << "]";
  EXPECT_TRUE(verdict.sites_right) << verdict.report;
  EXPECT_EQ(verdict.clean_seeds, kSeeds) << verdict.report;
}

std::string test_name(const testing::TestParamInfo<Bug>& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Catalogue, testing::ValuesIn(catalogue()), test_name);

TEST(Catalogue, NamesAreUnique) {
  std::set<std::string> names;
  for (const Bug& bug : catalogue()) EXPECT_TRUE(names.insert(bug.name).second) << bug.name;
  EXPECT_GE(names.size(), 16u);
}

// The report of the warp-specialised pipeline names who waits and whose arrival is missing.
TEST(Catalogue, DeadlockNamesRolesAndTheMissingArrival) {
  for (const Bug& bug : catalogue()) {
    if (std::string(bug.name) != "skipped-release") continue;
    const std::string report = judge(bug, 0).report;
    for (const char* part : {"(producer)", "(consumer)", "empty[1]",
                             "missing, by the phase before: warp 1 (consumer)"}) {
      EXPECT_NE(report.find(part), std::string::npos) << part << " is not in:\n" << report;
    }
  }
}

}  // namespace
}  // namespace halftone::bugs

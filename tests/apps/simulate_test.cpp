// halftone simulate: reports, exit codes, JSON, the table of bugs, wrong arguments.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/run_command.h"

namespace halftone {
namespace {

using nlohmann::json;
using test::CommandResult;
using test::run_command;

CommandResult simulate(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "simulate");
  return run_command(arguments);
}

TEST(Simulate, ReportsABugAndFails) {
  const CommandResult r = simulate({"bug:missing-proxy-fence"});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_NE(r.out.find("proxy.missing_fence"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("fix:"), std::string::npos);
  EXPECT_NE(r.out.find("seed=1"), std::string::npos);
}

TEST(Simulate, FixedFormIsCleanUnderEverySchedule) {
  for (const char* schedule : {"fifo", "random", "adversarial"}) {
    const CommandResult r = simulate({"bug:missing-proxy-fence:fixed", "--severity", "strict",
                                      "--schedule", schedule, "--seed", "11"});
    EXPECT_EQ(r.exit_code, 0) << r.out;
    EXPECT_NE(r.out.find("no violation"), std::string::npos);
  }
}

TEST(Simulate, SeverityOffReportsNothing) {
  EXPECT_EQ(simulate({"bug:missing-proxy-fence", "--severity", "off"}).exit_code, 0);
}

TEST(Simulate, JsonNamesBothPlaces) {
  const CommandResult r = simulate({"bug:missing-full-wait", "--json"});
  const json report = json::parse(r.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << r.out << r.err;
  ASSERT_FALSE(report["violations"].empty());
  const json& violation = report["violations"][0];
  EXPECT_EQ(violation["rule"], "async.not_waited");
  ASSERT_EQ(violation["accesses"].size(), 2u);
  EXPECT_NE(violation["accesses"][0]["line"], violation["accesses"][1]["line"]);
  EXPECT_TRUE(report["counters"].contains("shared_wavefronts"));
}

TEST(Simulate, TableOfBugs) {
  const CommandResult r = simulate({"--bugs", "--seeds", "2", "--json"});
  EXPECT_EQ(r.exit_code, 0) << r.out;
  const json table = json::parse(r.out, nullptr, false);
  ASSERT_TRUE(table.is_array());
  EXPECT_GE(table.size(), 16u);
  for (const json& row : table) {
    EXPECT_TRUE(row["reported"]) << row;
    EXPECT_EQ(row["sites"], "right") << row;
  }
}

TEST(Simulate, RunsAStepOfTheLadderInTheSizeAskedFor) {
  if (simulate({"--list"}).out.find("ladder:1") == std::string::npos) {
    GTEST_SKIP() << "this build has no examples, so the command has no ladder";
  }
  const CommandResult r = simulate({"ladder:3", "--device", "sim:sm_80", "--size", "24,40,16"});
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("relative error"), std::string::npos) << r.out;
}

TEST(Simulate, WrongArgumentsAreSentences) {
  const struct {
    std::vector<std::string> arguments;
    const char* says;
  } calls[] = {
      {{}, "name a kernel"},
      {{"laddr:3"}, "\"laddr:3\" is not known"},
      {{"bug:early-exit", "--schedule", "fair"}, "fair"},
      {{"bug:early-exit", "--severity", "harsh"}, "harsh"},
      {{"bug:early-exit", "--numerics", "slow"}, "slow"},
      {{"bug:early-exit", "--device", "cpu"}, "not a simulated one"},
      {{"bug:early-exit", "--device", "sim:sm_80"}, "sm_90a"},
      {{"bug:early-exit", "--size", "4"}, "--size has 1 numbers"},
      {{"bug:early-exit", "--seed", "x"}, "seed"},
  };
  for (const auto& call : calls) {
    const CommandResult r = simulate(call.arguments);
    EXPECT_NE(r.exit_code, 0) << call.says;
    EXPECT_NE(r.err.find(call.says), std::string::npos) << call.says << " is not in: " << r.err;
  }
}

}  // namespace
}  // namespace halftone

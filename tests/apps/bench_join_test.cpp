// `halftone bench --from`: reports of parts become one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/run_command.h"

namespace halftone {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json row(const char* name, double value) {
  return {{"name", name},
          {"unit", "GB/s"},
          {"value", value},
          {"seconds", 1.0},
          {"seconds_quartiles", {1.0, 1.0}}};
}

json report(const char* started, const char* family, const std::vector<json>& rows) {
  return {{"machine", {{"processor", "a processor"}}},
          {"conditions", {{"started", started}}},
          {"families", {{{"name", family}, {"title", family}, {"rows", rows}}}}};
}

TEST(BenchJoin, RowsAreAddedAndMeasuredAgain) {
  const fs::path folder = fs::temp_directory_path() / ("halftone-join-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const auto write = [&](const char* name, const json& content) {
    std::ofstream(folder / name) << content.dump();
    return (folder / name).string();
  };
  const std::string first = write("1", report("one", "gemv", {row("a", 1), row("b", 2)}));
  const std::string second = write("2", report("two", "gemv", {row("b", 3), row("c", 4)}));
  const std::string third = write("3", report("three", "moe", {row("a", 5)}));
  const test::CommandResult r =
      test::run_command({"bench", "--from", first, second, third, "--json"});
  fs::remove_all(folder);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json joined = json::parse(r.out);
  ASSERT_EQ(joined.at("families").size(), 2u);
  const json& gemv = joined["families"][0];
  ASSERT_EQ(gemv.at("rows").size(), 3u);
  EXPECT_EQ(gemv["rows"][0].at("value"), 1);
  EXPECT_EQ(gemv["rows"][1].at("value"), 3) << "the later figure of b";
  EXPECT_EQ(gemv["rows"][2].at("value"), 4);
  ASSERT_EQ(gemv.at("conditions").size(), 2u);
  EXPECT_EQ(gemv["conditions"][1].at("started"), "two");
  EXPECT_EQ(joined["families"][1].at("rows").size(), 1u) << "another family's a is another row";
}

}  // namespace
}  // namespace halftone

// The list of rules and the sources agree.
#include "sim/rules.h"
#include "support/source_path.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

namespace halftone::test {
namespace {

TEST(Rules, ListAndSourcesAgree) {
  std::set<std::string> used;
  std::string all;
  // Families of ids that are not instructions' names.
  const std::regex id(
      "\"((race|shared|proxy|async|cp_async|registers|tmem|global|tensor_map|tma|barrier|"
      "collective)"
      "\\.[a-z_]+)\"");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_path("src/sim"))) {
    if (entry.path().extension() != ".cpp") continue;
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (std::sregex_iterator it(text.begin(), text.end(), id), end; it != end; ++it) {
      used.insert((*it)[1]);
    }
    all += text;
  }
  ASSERT_GT(used.size(), 40u);
  for (const std::string& rule : used) {
    EXPECT_NE(sim::find_rule(rule), nullptr) << rule << " is not in sim/rules.h";
  }
  std::set<std::string> seen;
  for (const sim::Rule& rule : sim::kRules) {
    EXPECT_TRUE(seen.insert(rule.id).second) << rule.id << " is listed twice";
    EXPECT_NE(all.find('"' + std::string(rule.id) + '"'), std::string::npos)
        << rule.id << " is reported nowhere";
    EXPECT_GT(std::string(rule.sentence).size(), 10u);
    EXPECT_GT(std::string(rule.fix).size(), 4u);
  }
}

}  // namespace
}  // namespace halftone::test

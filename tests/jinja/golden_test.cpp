// What Python's Jinja makes of the templates in tests/fixtures/templates.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/jinja/template.h"
#include "support/source_path.h"

namespace halftone {
namespace {

constexpr int64_t kClock = 1'760'000'000;  // of fixture_templates.py

std::string read(const std::string& name) {
  std::ifstream in(test::source_path("tests/fixtures/templates/" + name));
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(JinjaGoldens, EveryTemplateAndConversation) {
  const auto contexts = nlohmann::ordered_json::parse(read("contexts.json"));
  const auto rows = nlohmann::json::parse(read("goldens.json"));
  ASSERT_GE(rows.size(), 120u);
  int refused = 0;
  for (const auto& row : rows) {
    const std::string name = row["template"], context = row["context"];
    SCOPED_TRACE(name + " with " + context);
    const jinja::Template source(read(name + ".jinja"), name);
    const jinja::Value variables = jinja::Value::from_json(contexts[context].dump(), context);
    try {
      const std::string text = source.render(variables.members(), kClock);
      ASSERT_TRUE(row.contains("text")) << "Python refuses, Halftone printed: " << text;
      EXPECT_EQ(text, row["text"].get<std::string>());
    } catch (const Error& error) {
      EXPECT_TRUE(row.contains("error")) << error.what();
      ++refused;
    }
  }
  EXPECT_EQ(refused, 13);
}

}  // namespace
}  // namespace halftone

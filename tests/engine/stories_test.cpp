// The greedy text of a trained llama2.c model, byte for byte. The model lies in the optional shared
// data; without it the test is skipped.
#include <fstream>
#include <sstream>

#include "halftone/engine.h"
#include "support/compare.h"

namespace halftone {
namespace {

// The golden texts are 200 steps long: as many tokens stand behind bos, the prompt's among them.
constexpr int64_t kSteps = 200;

struct Golden {
  std::string prompt, text;
};

std::vector<Golden> read_golden(const std::string& path) {
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  const std::string text = all.str(), mark = "=== prompt: [";
  std::vector<Golden> result;
  for (size_t at = text.find(mark); at != std::string::npos;) {
    const size_t begin = at + mark.size(), end = text.find("]\n", begin);
    const size_t next = text.find(mark, end);
    std::string body = text.substr(end + 2, next == std::string::npos ? next : next - end - 2);
    if (!body.empty() && body.back() == '\n') body.pop_back();
    result.push_back({text.substr(begin, end - begin), body});
    at = next;
  }
  return result;
}

class StoriesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = test::shared_data("models/stories260K/stories260K.bin");
    golden_ = test::shared_data("models/stories260K/golden_greedy.txt");
    if (model_.empty() || golden_.empty()) {
      GTEST_SKIP() << "models/stories260K is not beside the checkout (HALFTONE_SHARED names it)";
    }
  }
  std::string model_, golden_;
};

std::string greedy_text(const std::shared_ptr<const Model>& model, const std::string& prompt,
                        const SessionOptions& options) {
  Session session(model, options);
  GenerateOptions generation;
  generation.max_new_tokens =
      kSteps + 1 - static_cast<int64_t>(model->tokenizer().encode(prompt).size());
  return prompt + generate(session, prompt, generation).text;
}

TEST_F(StoriesTest, GreedyTextEqualsTheGoldenOne) {
  LoadOptions load;
  load.weights = "f32";
  const auto model = Model::load(model_, load);
  SessionOptions options;
  options.kv = Format::f32;
  options.threads = 1;
  const std::vector<Golden> golden = read_golden(golden_);
  ASSERT_EQ(golden.size(), 4u);
  test::at_every_level([&] {
    for (const Golden& g : golden) {
      EXPECT_EQ(greedy_text(model, g.prompt, options), g.text) << "prompt " << g.prompt;
    }
  });
}

TEST_F(StoriesTest, TextDoesNotDependOnThreads) {
  const auto model = Model::load(model_);
  SessionOptions one, many;
  one.threads = 1;
  many.threads = 3;
  EXPECT_EQ(greedy_text(model, "The little dog", one), greedy_text(model, "The little dog", many));
}

}  // namespace
}  // namespace halftone

#include "engine/checkpoint.h"

#include <gtest/gtest.h>

#include "support/compare.h"

namespace halftone {
namespace {

TEST(Checkpoint, ReadsARealLlama2cModel) {
  const std::string path = test::shared_data("models/stories260K/stories260K.bin");
  if (path.empty()) GTEST_SKIP() << "no shared data: models/stories260K";
  const auto checkpoint = Checkpoint::open(path);
  const ModelConfig& config = checkpoint->config();
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.layers, 5);
  EXPECT_EQ(config.heads, 8);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.intermediate, 172);
  EXPECT_EQ(config.vocabulary, 512);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.rope.style, RopeStyle::interleaved);
  EXPECT_EQ(checkpoint->names().size(), 1 + 5 * 9 + 1u);
  EXPECT_EQ(checkpoint->weight("model.layers.4.mlp.down_proj").shape(), (Shape{64, 172}));
  // A trained norm weight is near 1; any slip in the order of the tensors shows here.
  const std::vector<float> norm = test::to_floats(checkpoint->tensor("model.norm.weight"));
  for (const float x : norm) {
    EXPECT_GT(x, 0.5f);
    EXPECT_LT(x, 20.0f);
  }
  EXPECT_FALSE(checkpoint->contains("lm_head.weight"));
  test::expect_error([&] { checkpoint->weight("model.layers.5.mlp.down_proj"); },
                     {"model.layers.5.mlp.down_proj.weight", "nearest"});
}

}  // namespace
}  // namespace halftone

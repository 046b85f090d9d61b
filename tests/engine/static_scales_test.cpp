// Static scales that a checkpoint has for a cache in fp8.
#include "engine/support/memory_model.h"

namespace halftone {
namespace {

using test::random_tokens;
using test::relative_difference;

class StaticScales : public ::testing::Test {
 protected:
  test::MemoryCheckpoint checkpoint = test::random_checkpoint(test::small_config());

  // `ending`: of the tensors' names behind "self_attn", with k or v for the star.
  void set(const std::string& ending, const Tensor& scale) {
    for (int64_t layer = 0; layer < checkpoint.config_.layers; ++layer) {
      for (const char part : {'k', 'v'}) {
        std::string name = "model.layers." + std::to_string(layer) + ".self_attn" + ending;
        for (char& c : name) c = c == '*' ? part : c;
        checkpoint.tensors_[name] = scale;
      }
    }
  }
  std::vector<float> logits(Format kv = Format::fp8_e4m3) const {
    SessionOptions options;
    options.kv = kv;
    Session session(test::make_model(checkpoint), options);
    const std::span<const float> row = session.forward(random_tokens(40, 3));
    return {row.begin(), row.end()};
  }
};

Tensor number(float value, const Shape& shape = {1}) {
  return Tensor::from<float>(std::vector<float>{value}, shape, Format::f32);
}

TEST_F(StaticScales, AreUsedByACacheInFp8Alone) {
  const std::vector<float> exact = logits(Format::f32), dynamic = logits();
  set(".*_proj.*_scale", number(0.0137f));
  EXPECT_EQ(logits(Format::f32), exact);
  const std::vector<float> fixed = logits();
  EXPECT_NE(fixed, dynamic);
  // E4M3 keeps three bits behind the point wherever the scale puts the values, but at its ends.
  EXPECT_LT(relative_difference(fixed, exact), 1.5 * relative_difference(dynamic, exact));
  // Keys and values beyond 448 times the scale saturate: at 0.04 hardly one is left as it was.
  set(".*_proj.*_scale", number(1e-4f));
  EXPECT_GT(relative_difference(logits(), exact), 5 * relative_difference(dynamic, exact));
}

TEST_F(StaticScales, OfBothConventions) {
  set(".*_proj.*_scale", number(0.0137f));
  const std::vector<float> expected = logits();
  checkpoint = test::random_checkpoint(test::small_config());
  set(".*_scale", convert(number(0.0137f, {}), Format::f32));
  EXPECT_EQ(logits(), expected);
  // A power of two is the same number in 16 bits.
  set(".*_scale", number(0x1p-6f));
  const std::vector<float> in_f32 = logits();
  set(".*_scale", convert(number(0x1p-6f), Format::bf16));
  EXPECT_EQ(logits(), in_f32);
}

TEST_F(StaticScales, OfSomeLayers) {
  const std::vector<float> dynamic = logits();
  checkpoint.tensors_["model.layers.1.self_attn.v_scale"] = number(0.0137f);
  EXPECT_NE(logits(), dynamic);
}

TEST_F(StaticScales, WrongOnesAreNamed) {
  const std::string name = "model.layers.1.self_attn.k_scale";
  for (const float value : {0.0f, -1.0f, std::nanf(""), 1e-40f}) {
    checkpoint.tensors_[name] = number(value);
    test::expect_error([&] { logits(); }, {name, "positive"});
  }
  checkpoint.tensors_[name] = Tensor::zeros({2}, Format::f32);
  test::expect_error([&] { logits(); }, {name, "[2]", "one number a layer"});
}

}  // namespace
}  // namespace halftone

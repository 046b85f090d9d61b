#include "engine/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "engine/checkpoint/safetensors_writer.h"
#include "engine_files/tiny_checkpoint.h"
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

using test::TempDirectory;

TEST(Checkpoint, ReadsLlama2cWithItsOwnClassifier) {
  const TempDirectory directory;
  std::string bytes = test::llama2c_bytes(-5);
  const float last = 4.5f;
  std::memcpy(bytes.data() + bytes.size() - 4, &last, 4);
  directory.write("model.bin", bytes);
  const auto checkpoint = Checkpoint::open(directory.path());  // found without config.json
  EXPECT_FALSE(checkpoint->config().tied_embeddings);
  EXPECT_EQ(checkpoint->config().vocabulary, 5);
  EXPECT_EQ(checkpoint->weight("lm_head").at({4, 7}), last);
  EXPECT_EQ(checkpoint->weight("model.layers.0.self_attn.k_proj").shape(), (Shape{4, 8}));
}

constexpr const char* kFp8 =
    R"({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"})";
constexpr const char* kNvfp4 =
    R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16})";

std::unique_ptr<Checkpoint> open(const TempDirectory& directory, const std::string& quantization,
                                 const SafetensorsWriter& writer) {
  directory.write("config.json", test::config_text({{"quantization_config", quantization}}));
  writer.write(directory.file("model.safetensors"));
  return Checkpoint::open(directory.path());
}

// 200 x 300 in blocks of 128: the blocks at the edges are partial.
TEST(Checkpoint, AssemblesFp8WeightsWithPartialBlocks) {
  for (const Format scale_format : {Format::f32, Format::bf16}) {
    const TempDirectory directory;
    Tensor codes = Tensor::zeros({200, 300}, Format::fp8_e4m3);
    for (int64_t i = 0; i < codes.numel(); ++i) {
      codes.data<uint8_t>()[i] = static_cast<uint8_t>(i % 0x7f);
    }
    const Tensor scales = test::random_tensor({2, 3}, scale_format, 1);
    SafetensorsWriter writer;
    writer.add("x.weight", codes);
    writer.add("x.weight_scale_inv", scales);
    const auto checkpoint = open(directory, kFp8, writer);
    const Tensor weight = checkpoint->weight("x");
    EXPECT_EQ(weight.format(), Format::fp8_e4m3);
    EXPECT_EQ(weight.scaling(), (Scaling{scale_format, 128, 128}));
    EXPECT_EQ(std::memcmp(weight.data(), codes.data(), 200 * 300), 0);
    EXPECT_EQ(test::to_floats(weight.scales()), test::to_floats(scales));
    EXPECT_EQ(weight.data(), checkpoint->tensor("x.weight").data());  // no copy
  }
}

TEST(Checkpoint, AssemblesNvfp4Weights) {
  const TempDirectory directory;
  Tensor codes = Tensor::zeros({3, 40}, Format::u8);  // K = 80: five groups
  for (int64_t i = 0; i < codes.numel(); ++i) codes.data<uint8_t>()[i] = static_cast<uint8_t>(i);
  Tensor scales = Tensor::zeros({3, 5}, Format::fp8_e4m3);
  scales.data<uint8_t>()[7] = 0x38;
  SafetensorsWriter writer;
  writer.add("x.weight", codes);
  writer.add("x.weight_scale", scales);
  writer.add("x.weight_scale_2", Tensor::from({0.25f}, Shape{}));
  writer.add("y.weight", test::random_tensor({2, 16}, Format::bf16, 1));
  const auto checkpoint = open(directory, kNvfp4, writer);
  const Tensor weight = checkpoint->weight("x");
  EXPECT_EQ(weight.format(), Format::nvfp4);
  EXPECT_EQ(weight.shape(), (Shape{3, 80}));
  EXPECT_EQ(weight.tensor_scale_value(), 0.25f);
  EXPECT_EQ(weight.scales().data<uint8_t>()[7], 0x38);
  EXPECT_EQ(weight.data(), checkpoint->tensor("x.weight").data());  // no copy
  EXPECT_EQ(checkpoint->weight("y").format(), Format::bf16);        // layers left in 16 bits
}

TEST(Checkpoint, WrongCompanionsOfQuantisedWeightsAreNamed) {
  const auto expect = [](const char* quantization, const SafetensorsWriter& writer,
                         const std::vector<std::string>& words) {
    const TempDirectory directory;
    const auto checkpoint = open(directory, quantization, writer);
    test::expect_error([&] { checkpoint->weight("x"); }, words);
  };
  SafetensorsWriter fp8;
  fp8.add("x.weight", Tensor::zeros({200, 300}, Format::fp8_e4m3));
  expect(kFp8, fp8, {"x.weight", "x.weight_scale_inv", "beside"});
  expect("null", fp8, {"x.weight", "quantization_config"});
  SafetensorsWriter shape = fp8;
  shape.add("x.weight_scale_inv", Tensor::zeros({2, 2}, Format::f32));
  expect(kFp8, shape, {"x.weight_scale_inv", "[2, 2]", "[2, 3]"});
  SafetensorsWriter type = fp8;
  type.add("x.weight_scale_inv", Tensor::zeros({2, 3}, Format::i32));
  expect(kFp8, type, {"x.weight_scale_inv", "i32"});

  SafetensorsWriter nvfp4;
  nvfp4.add("x.weight", Tensor::zeros({4, 16}, Format::u8));
  expect(kNvfp4, nvfp4, {"x.weight", "x.weight_scale", "beside"});
  expect(kFp8, nvfp4, {"x.weight", "NVFP4"});
  nvfp4.add("x.weight_scale", Tensor::zeros({4, 2}, Format::fp8_e4m3));
  expect(kNvfp4, nvfp4, {"x.weight_scale_2", "beside"});
  nvfp4.add("x.weight_scale_2", Tensor::zeros({2}, Format::f32));
  expect(kNvfp4, nvfp4, {"x.weight_scale_2", "[2]", "one F32"});

  SafetensorsWriter integers;
  integers.add("x.weight", Tensor::zeros({4, 16}, Format::i64));
  expect("null", integers, {"x.weight", "i64"});
}

}  // namespace
}  // namespace halftone

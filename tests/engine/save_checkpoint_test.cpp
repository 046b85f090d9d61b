// Written checkpoints load again with the same logits, and read as Transformers would read them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/checkpoint/safetensors.h"
#include "engine/support/memory_model.h"
#include "support/source_path.h"

namespace halftone {
namespace {

namespace fs = std::filesystem;
using test::exact_session;
using test::expect_error;
using test::random_tokens;
using test::relative_difference;
using test::values_of;

std::string source(const std::string& path) { return test::source_path(path); }

nlohmann::json read_json(const fs::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

class SaveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("halftone_save_" + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string out(const std::string& name) const { return (root_ / name).string(); }

  fs::path root_;
};

Tensor logits_of(const std::shared_ptr<const Model>& model) {
  Session session(model, exact_session());
  const auto vocabulary = static_cast<int32_t>(model->config().vocabulary);
  return session.forward_all(random_tokens(20, 4, vocabulary));
}

Tensor logits_of(const std::string& path, const std::string& weights = "") {
  LoadOptions options;
  options.weights = weights;
  return logits_of(Model::load(path, options));
}

TEST_F(SaveTest, LoadsAgainWithTheSameLogits) {
  for (const std::string model : {"examples/models/bard", "examples/models/bard-moe",
                                  "tests/fixtures/llama_nvfp4", "tests/fixtures/qwen3_fp8"}) {
    for (const std::string format :
         {"bf16", "f16", "f32", "fp8", "nvfp4", "nvfp4_adaptive", "fp8_row", "fp8_tensor", "int8",
          "int4", "int4_g64", "mxfp8", "mxfp4"}) {
      // 136 columns are no multiple of 16, nor 80 of 32.
      const bool groups = format.rfind("mx", 0) == 0 || format.rfind("int4", 0) == 0;
      if (model == "tests/fixtures/qwen3_fp8" && (groups || format.rfind("nvfp4", 0) == 0))
        continue;
      if (model == "tests/fixtures/llama_nvfp4" && groups) continue;
      SCOPED_TRACE(model + " as " + format);
      const std::string destination = out(fs::path(model).filename().string() + "-" + format);
      save_checkpoint(source(model), destination, format);
      const Tensor expected = logits_of(source(model), format), saved = logits_of(destination);
      EXPECT_EQ(relative_difference(values_of(saved), values_of(expected)), 0.0);
      EXPECT_TRUE(fs::exists(destination + "/config.json"));
      EXPECT_EQ(fs::exists(destination + "/tokenizer.json"),
                fs::exists(source(model) + "/tokenizer.json"));
    }
  }
}

// The files say what a reader that knows only the conventions needs.
TEST_F(SaveTest, Fp8AsTheConventionHasIt) {
  save_checkpoint(source("examples/models/bard-moe"), out("fp8"), "fp8");
  const nlohmann::json config = read_json(root_ / "fp8/config.json");
  const nlohmann::json& q = config.at("quantization_config");
  EXPECT_EQ(q.at("quant_method"), "fp8");
  EXPECT_EQ(q.at("weight_block_size"), (nlohmann::json{128, 128}));
  EXPECT_EQ(q.at("modules_to_not_convert"),
            (nlohmann::json{"lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate",
                            "model.layers.2.mlp.gate"}));
  EXPECT_EQ(config.at("torch_dtype"), "bfloat16");
  const Safetensors file = Safetensors::open_file(out("fp8") + "/model.safetensors");
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  const Tensor codes = file.tensor(name), scales = file.tensor(name + "_scale_inv");
  EXPECT_EQ(codes.format(), Format::fp8_e4m3);
  EXPECT_EQ(codes.shape(), (Shape{256, 128}));
  EXPECT_EQ(scales.format(), Format::f32);
  EXPECT_EQ(scales.shape(), (Shape{2, 1}));
  EXPECT_EQ(file.tensor("model.layers.1.mlp.gate.weight").format(), Format::bf16);
  EXPECT_EQ(file.find("lm_head.weight"), nullptr);  // tied
  // code * scale_inv is the weight: the largest of a block is within half a step, 1/16, of it.
  const Safetensors original =
      Safetensors::open_file(source("examples/models/bard-moe/model.safetensors"));
  const std::vector<float> weight = test::to_floats(original.tensor(name));
  for (int64_t block = 0; block < 2; ++block) {
    const auto begin = weight.begin() + block * 128 * 128;
    const auto largest = std::max_element(
        begin, begin + 128 * 128, [](float a, float b) { return std::abs(a) < std::abs(b); });
    EXPECT_NEAR(scales.at({block, 0}) * 448, std::abs(*largest), std::abs(*largest) / 16);
  }
}

TEST_F(SaveTest, Nvfp4AsTheConventionHasIt) {
  save_checkpoint(source("examples/models/bard"), out("nvfp4"), "nvfp4");
  const nlohmann::json config = read_json(root_ / "nvfp4/config.json");
  EXPECT_EQ(config.at("quantization_config").at("quant_method"), "modelopt");
  EXPECT_EQ(config.at("dtype"), "bfloat16");
  const nlohmann::json q = read_json(root_ / "nvfp4/hf_quant_config.json").at("quantization");
  EXPECT_EQ(q.at("group_size"), 16);
  EXPECT_TRUE(q.at("kv_cache_quant_algo").is_null());
  EXPECT_EQ(q.at("exclude_modules"), nlohmann::json{"lm_head"});
  const Safetensors file = Safetensors::open_file(out("nvfp4") + "/model.safetensors");
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  EXPECT_EQ(file.tensor(name).shape(), (Shape{256, 256}));
  EXPECT_EQ(file.tensor(name).format(), Format::u8);
  EXPECT_EQ(file.tensor(name + "_scale").shape(), (Shape{256, 32}));
  EXPECT_EQ(file.tensor(name + "_scale").format(), Format::fp8_e4m3);
  EXPECT_EQ(file.tensor(name + "_scale_2").numel(), 1);
  EXPECT_EQ(file.tensor("model.embed_tokens.weight").format(), Format::bf16);
}

TEST_F(SaveTest, CompressedTensorsAsTheConventionHasIt) {
  save_checkpoint(source("examples/models/bard"), out("int4"), "int4_g64");
  const nlohmann::json q = read_json(root_ / "int4/config.json").at("quantization_config");
  EXPECT_EQ(q.at("quant_method"), "compressed-tensors");
  EXPECT_EQ(q.at("format"), "pack-quantized");
  const nlohmann::json& weights = q.at("config_groups").at("group_0").at("weights");
  EXPECT_EQ(weights.at("num_bits"), 4);
  EXPECT_EQ(weights.at("strategy"), "group");
  EXPECT_EQ(weights.at("group_size"), 64);
  const Safetensors file = Safetensors::open_file(out("int4") + "/model.safetensors");
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  EXPECT_EQ(file.tensor(name + "_packed").format(), Format::i32);
  EXPECT_EQ(file.tensor(name + "_packed").shape(), (Shape{256, 64}));
  EXPECT_EQ(file.tensor(name + "_scale").shape(), (Shape{256, 8}));
  EXPECT_EQ(file.tensor(name + "_shape").data<int64_t>()[1], 512);
}

// A small bound makes several files; a tensor and its scales share one.
TEST_F(SaveTest, ShardsWithAnIndex) {
  const std::string bard = source("examples/models/bard");
  save_checkpoint(bard, out("one"), "nvfp4");
  save_checkpoint(bard, out("many"), "nvfp4", {}, 400'000);
  const nlohmann::json index = read_json(root_ / "many/model.safetensors.index.json");
  std::set<std::string> files;
  for (const auto& [name, shard] : index.at("weight_map").items()) {
    files.insert(shard.get<std::string>());
    if (!name.ends_with(".weight_scale")) continue;
    const std::string weight = name.substr(0, name.size() - 6);
    EXPECT_EQ(shard, index.at("weight_map").at(weight));
  }
  EXPECT_GT(files.size(), 2u);
  EXPECT_EQ(*files.begin(), "model-00001-of-0000" + std::to_string(files.size()) + ".safetensors");
  EXPECT_FALSE(fs::exists(root_ / "many/model.safetensors"));
  EXPECT_EQ(
      relative_difference(values_of(logits_of(out("many"))), values_of(logits_of(out("one")))),
      0.0);
}

TEST_F(SaveTest, ImportsLlama2c) {
  const std::string model = test::shared_data("models/stories260K/stories260K.bin");
  if (model.empty()) GTEST_SKIP() << "models/stories260K is not beside the checkout";
  save_checkpoint(model, out("stories"), "f32");
  const Tensor expected = logits_of(model), saved = logits_of(out("stories"));
  // The rows of q and k are permuted, so only the order of sums over a head of 8 differs.
  EXPECT_LT(relative_difference(values_of(saved), values_of(expected)), 1e-5);
  const nlohmann::json config = read_json(root_ / "stories/config.json");
  EXPECT_EQ(config.at("model_type"), "llama");
  EXPECT_EQ(config.at("num_key_value_heads"), 4);
  EXPECT_EQ(config.at("torch_dtype"), "float32");
  const auto loaded = Model::load(out("stories")), original = Model::load(model);
  EXPECT_EQ(loaded->config().rope.style, RopeStyle::half_split);
  EXPECT_EQ(loaded->config().eos, original->config().eos);
  EXPECT_EQ(loaded->tokenizer().encode("Once upon a time"),
            original->tokenizer().encode("Once upon a time"));
}

TEST_F(SaveTest, WrongCallsLeaveNothingBehind) {
  const std::string bard = source("examples/models/bard");
  expect_error([&] { save_checkpoint(bard, out("a"), "int4_asym"); }, {"int4_asym", "nvfp4"});
  expect_error([&] { save_checkpoint(bard, out("a"), ""); }, {"choose bf16"});
  expect_error([&] { save_checkpoint(bard, out("a"), "int8_g32"); }, {"int8_g32"});
  expect_error([&] { save_checkpoint(source("tests/fixtures/gpt_oss"), out("a"), "bf16"); },
               {"stacked experts"});
  expect_error([&] { save_checkpoint(bard, out("a"), "nvfp"); }, {"\"nvfp\"", "nvfp4"});
  expect_error([&] { save_checkpoint(bard, "", "bf16"); }, {"destination is empty"});
  expect_error([&] { save_checkpoint(out("none"), out("a"), "bf16"); }, {"none"});
  expect_error([&] { save_checkpoint(source("tests/fixtures/qwen3_fp8"), out("a"), "nvfp4"); },
               {"136", "16", "down_proj"});
  EXPECT_TRUE(fs::is_empty(root_));
  fs::create_directories(root_ / "full/inside");
  expect_error([&] { save_checkpoint(bard, out("full"), "bf16"); }, {"full", "not an empty"});
  expect_error([&] { save_checkpoint(bard, "/proc/nowhere/x", "bf16"); }, {"/proc/nowhere"});
  fs::create_directories(root_ / "empty");
  EXPECT_NO_THROW(save_checkpoint(bard, out("empty"), "bf16"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 2);
}

TEST_F(SaveTest, InterruptedWritingLeavesNothing) {
  struct Stop {};
  const auto stop = [](double fraction) {
    if (fraction > 0.5) throw Stop();
  };
  EXPECT_THROW(save_checkpoint(source("examples/models/bard"), out("a"), "fp8", stop), Stop);
  EXPECT_TRUE(fs::is_empty(root_));
}

}  // namespace
}  // namespace halftone

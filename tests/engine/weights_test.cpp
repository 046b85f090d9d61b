// Loading with `weights`: every quantisation on the bundled models, memory, wrong files and names.
#include <fstream>
#include <sstream>

#include "engine/support/memory_model.h"
#include "engine/weights.h"

namespace halftone {
namespace {

using test::exact_session;
using test::expect_error;
using test::make_model;
using test::MemoryCheckpoint;
using test::random_checkpoint;

std::string bundled(const std::string& name) {
  return std::string(HALFTONE_SOURCE_DIR) + "/examples/models/" + name;
}

std::string heldout() {
  std::ifstream file(bundled("heldout.txt"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::shared_ptr<const Model> load(const std::string& name, const std::string& weights) {
  LoadOptions options;
  options.weights = weights;
  return Model::load(bundled(name), options);
}

// Mean negative log likelihood over windows of 512 tokens without a start token: the figure that
// the training script states in the model cards.
double card_loss(const std::string& name) {
  const auto model = load(name, "");
  Session session(model, exact_session());
  const std::vector<int32_t> tokens = model->tokenizer().encode(heldout(), false);
  double sum = 0;
  int64_t count = 0;
  for (size_t begin = 0; begin < tokens.size(); begin += 512) {
    const auto window =
        std::span(tokens).subspan(begin, std::min<size_t>(512, tokens.size() - begin));
    session.truncate(0);
    const Tensor logits = session.forward_all(window);
    for (size_t i = 0; i + 1 < window.size(); ++i, ++count) {
      const float* row = logits.data<float>() + static_cast<int64_t>(i) * logits.size(1);
      double total = 0;
      for (int64_t j = 0; j < logits.size(1); ++j) total += std::exp(double{row[j]});
      sum += std::log(total) - row[window[i + 1]];
    }
  }
  return sum / static_cast<double>(count);
}

// The cards give three decimals, computed by PyTorch in another order of sums.
TEST(Weights, LossOfTheModelCards) {
  EXPECT_NEAR(card_loss("bard"), 3.406, 0.001);
  EXPECT_NEAR(card_loss("bard-moe"), 3.918, 0.001);
}

// KL divergence from the f32 model that a format may cost. Rounding weights to a relative step u
// moves the logits of these models by about 3u of their spread (measured 2..4 over the layers), and
// a logit shift d costs d^2 / 2 nats: with a spread of 3, (9u)^2 / 2. A step is 2^-8 for int8 (of
// the largest of a row or group: 4 times the usual value, so 2^-6), 2^-3 / sqrt(12) rms for E4M3,
// 2^-2 / sqrt(12) for E5M2 and int4, 0.3 / sqrt(12) for E2M1. Twice that is allowed.
double allowed_divergence(const QuantizeOptions& options) {
  double step = 0;
  switch (options.format) {
    case Format::int8:
      step = 0x1p-6;
      break;
    case Format::fp8_e4m3:
    case Format::mxfp8:
      step = 0x1p-3;
      break;
    case Format::fp8_e5m2:
      step = 0x1p-2;
      break;
    default:
      step = 0.35;
      break;
  }
  const double u = step / std::sqrt(12.0);
  return (9 * u) * (9 * u);
}

class SweepTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SweepTest, EveryQuantisation) {
  const std::string text = heldout().substr(0, 1500);
  Session teacher(load(GetParam(), "f32"), exact_session());
  const TextScore exact = score(teacher, text);
  const int64_t f32_bytes = teacher.model().weight_bytes();
  double four_bits = 0, eight_bits = 0;
  for (const std::string& name : quantization_names()) {
    SCOPED_TRACE(name);
    const QuantizeOptions options = parse_quantization(name);
    const auto model = load(GetParam(), name);
    Session session(model, exact_session());
    const TextScore result = score(session, text, 256, &teacher);
    EXPECT_EQ(result.tokens, exact.tokens);
    EXPECT_GT(result.kl, 0);
    EXPECT_LT(result.kl, allowed_divergence(options));
    // The mean log likelihood cannot move much further than the distributions do.
    EXPECT_LT(std::abs(result.nll - exact.nll), 2 * std::sqrt(result.kl));
    EXPECT_LT(model->weight_bytes(), f32_bytes / 2);
    RecordProperty(name, std::to_string(result.kl));
    if (name == "nvfp4") four_bits = result.kl;
    if (name == "fp8") eight_bits = result.kl;
  }
  EXPECT_LT(2 * eight_bits, four_bits);
}

INSTANTIATE_TEST_SUITE_P(Models, SweepTest, ::testing::Values("bard", "bard-moe"),
                         [](const auto& info) {
                           return std::string(info.param) == "bard" ? "bard" : "bard_moe";
                         });

TEST(Weights, PlainFormatsTakeEverything) {
  const MemoryCheckpoint checkpoint = random_checkpoint(test::small_config(), Format::bf16);
  int64_t elements = 0;
  for (const auto& [name, tensor] : checkpoint.tensors_) elements += tensor.numel();
  EXPECT_EQ(make_model(checkpoint)->weight_bytes(), 2 * elements);
  EXPECT_EQ(make_model(checkpoint, "f32")->weight_bytes(), 4 * elements);
  EXPECT_EQ(make_model(checkpoint, "float16")->weight_bytes(), 2 * elements);
  EXPECT_NE(make_model(checkpoint, "f32")->describe().find("weights f32"), std::string::npos);
}

TEST(Weights, QuantisationLeavesTablesAndSmallTensors) {
  const auto model = make_model(random_checkpoint(test::small_moe_config()), "nvfp4");
  const auto& loaded = dynamic_cast<const LoadedModel&>(*model);
  EXPECT_EQ(loaded.embedding().format(), Format::bf16);  // 16 bits, as checkpoints have it
  EXPECT_EQ(loaded.head().format(), Format::bf16);
  EXPECT_EQ(loaded.final_norm().format(), Format::f32);
  const LayerWeights& sparse = loaded.layers()[0];
  EXPECT_EQ(sparse.router.format(), Format::f32);
  EXPECT_EQ(sparse.q.format(), Format::nvfp4);
  EXPECT_EQ(sparse.expert_down[7].format(), Format::nvfp4);
  EXPECT_EQ(loaded.layers()[1].gate.format(), Format::nvfp4);
  EXPECT_NE(model->describe().find("nvfp4"), std::string::npos);
}

TEST(Weights, StoredTensorsAreNotCopied) {
  const MemoryCheckpoint checkpoint = random_checkpoint(test::small_config());
  const auto model = make_model(checkpoint);
  const auto& loaded = dynamic_cast<const LoadedModel&>(*model);
  EXPECT_EQ(loaded.layers()[0].q.data(),
            checkpoint.tensors_.at("model.layers.0.self_attn.q_proj.weight").data());
}

TEST(Weights, TiedHeadIsTheEmbedding) {
  ModelConfig config = test::small_config();
  config.tied_embeddings = true;
  const auto model = make_model(random_checkpoint(config), "fp8");
  const auto& loaded = dynamic_cast<const LoadedModel&>(*model);
  EXPECT_EQ(loaded.head().data(), loaded.embedding().data());
}

TEST(Weights, ProgressRisesToOne) {
  std::vector<double> seen;
  LoadOptions options;
  options.progress = [&](double fraction) { seen.push_back(fraction); };
  const LoadedModel model(random_checkpoint(test::small_config()), nullptr, options);
  ASSERT_GT(seen.size(), 10u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_GE(seen.front(), 0.0);
  EXPECT_EQ(seen.back(), 1.0);
}

// --- wrong files, names and shapes ---------------------------------------------------------------

TEST(WeightsErrors, UnknownFormat) {
  expect_error([] { load("bard", "nvfp5"); }, {"nvfp5", "nvfp4"});
  expect_error([] { load("bard", "bf17"); }, {"bf17", "bf16"});
  expect_error([] { load("bart", ""); }, {"bart"});
}

TEST(WeightsErrors, FormatThatCannotHoldAMatrix) {
  ModelConfig config = test::small_config();
  config.intermediate = 172;  // no multiple of 16
  const MemoryCheckpoint checkpoint = random_checkpoint(config);
  expect_error([&] { make_model(checkpoint, "nvfp4"); },
               {"model.layers.0.mlp.down_proj.weight", "172", "nvfp4", "16"});
  EXPECT_NO_THROW(make_model(checkpoint, "fp8"));
}

TEST(WeightsErrors, Tensors) {
  const auto broken = [](const auto& change) {
    MemoryCheckpoint checkpoint = random_checkpoint(test::small_moe_config());
    change(checkpoint);
    make_model(checkpoint);
  };
  expect_error([&] { broken([](auto& c) { c.config_.intermediate = 260; }); },
               {"model.layers.1.mlp.gate_proj.weight", "[256, 128]", "[260, 128]"});
  expect_error([&] { broken([](auto& c) { c.config_.head_dim = 16; }); },
               {"model.layers.0.self_attn.q_proj.weight", "[128, 128]", "[64, 128]"});
  expect_error(
      [&] {
        broken([](auto& c) { c.tensors_["model.extra.weight"] = Tensor::zeros({4}, Format::f32); });
      },
      {"model.extra.weight", "belongs to no part"});
  expect_error([&] { broken([](auto& c) { c.config_.experts = 7; }); }, {"[8, 128]", "[7, 128]"});
  expect_error([&] { broken([](auto& c) { c.config_.qk_norm = false; }); }, {"k_norm"});
  expect_error([&] { broken([](auto& c) { c.config_.architecture = "Qwen3MoEForCausalLM"; }); },
               {"Qwen3MoEForCausalLM", "Qwen3MoeForCausalLM"});
  expect_error([&] { broken([](auto& c) { c.config_.kv_heads = 3; }); }, {"num_key_value_heads 3"});
  expect_error([&] { broken([](auto& c) { c.config_.head_dim = 33; }); }, {"head_dim is 33"});
  expect_error([&] { broken([](auto& c) { c.config_.layers = 0; }); }, {"num_hidden_layers is 0"});
}

}  // namespace
}  // namespace halftone

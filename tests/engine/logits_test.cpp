// Logits of small random models against those of Hugging Face Transformers (tests/fixtures).
#include <algorithm>
#include <filesystem>
#include <ostream>
#include <utility>

#include "engine/checkpoint/safetensors.h"
#include "engine/support/memory_model.h"
#include "support/source_path.h"

namespace halftone {
namespace {

using test::exact_session;
using test::MemoryCheckpoint;
using test::relative_difference;
using test::values_of;

// The acceptance limit of the project. Two correct f32 programs differ by the order of their sums:
// sqrt(K) * 2^-24 a product, below 1e-6 for K <= 136, a few of which add up over three layers.
constexpr double kTolerance = 1e-4;

std::string fixture(const std::string& name) { return test::source_path("tests/fixtures/" + name); }

struct Expected {
  std::vector<int32_t> tokens;
  Tensor logits;  // f32 [tokens, vocabulary]
  // Of one call a token, where that differs: rotations that depend on the length.
  Tensor stepwise;
};

Expected expected_of(const std::string& name) {
  const Safetensors file = Safetensors::open_file(fixture(name) + "/expected.safetensors");
  const Tensor ids = file.tensor("input_ids");
  Expected result;
  for (int64_t i = 0; i < ids.numel(); ++i) {
    result.tokens.push_back(static_cast<int32_t>(ids.data<int64_t>()[i]));
  }
  result.logits = file.tensor("logits");
  const bool differs = file.find("stepwise_logits") != nullptr;
  result.stepwise = differs ? file.tensor("stepwise_logits") : result.logits;
  return result;
}

// Largest relative difference of any row.
double worst_row(const Tensor& logits, const Tensor& expected) {
  double worst = 0;
  for (int64_t i = 0; i < expected.size(0); ++i) {
    const double difference = relative_difference(values_of(logits.slice(0, i, i + 1)),
                                                  values_of(expected.slice(0, i, i + 1)));
    worst = std::max(worst, difference);
  }
  return worst;
}

double difference_of(std::shared_ptr<const Model> model, const Expected& expected) {
  Session session(std::move(model), exact_session());
  return worst_row(session.forward_all(expected.tokens), expected.logits);
}

class LogitsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LogitsTest, EqualTransformers) {
  const Expected expected = expected_of(GetParam());
  test::at_every_level(
      [&] { EXPECT_LT(difference_of(Model::load(fixture(GetParam())), expected), kTolerance); });
}

TEST_P(LogitsTest, EqualTransformersTokenByToken) {
  const Expected expected = expected_of(GetParam());
  Session session(Model::load(fixture(GetParam())), exact_session());
  for (size_t i = 0; i < expected.tokens.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    const auto logits = session.forward(std::span(expected.tokens).subspan(i, 1));
    EXPECT_LT(relative_difference(logits, values_of(expected.stepwise.slice(0, row, row + 1))),
              kTolerance)
        << "token " << i;
  }
}

// The same numbers from weights expanded to f32 on loading.
TEST_P(LogitsTest, EqualTransformersWithWeightsInF32) {
  const Expected expected = expected_of(GetParam());
  LoadOptions options;
  options.weights = "f32";
  EXPECT_LT(difference_of(Model::load(fixture(GetParam()), options), expected), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, LogitsTest,
                         ::testing::Values("llama", "llama3_rope", "llama_linear", "llama_dynamic",
                                           "gpt_oss", "llama_yarn", "llama_longrope",
                                           "llama_mha_f16", "mistral", "mixtral", "qwen2",
                                           "qwen2_window", "qwen3", "qwen3_moe", "qwen3_fp8",
                                           "llama_fp8_ue8m0", "llama_nvfp4", "llama_modelopt_fp8",
                                           "llama_ct_nvfp4", "llama_ct_fp8", "llama_ct_fp8_tensor",
                                           "llama_ct_mxfp4", "llama_ct_mxfp8", "llama_ct_int8",
                                           "llama_ct_int4"),
                         [](const auto& info) { return std::string(info.param); });

// gpt-oss in a plain float format has its experts input-major; and any other format on loading.
TEST(StackedExperts, InEveryFormat) {
  const Expected expected = expected_of("gpt_oss");
  MemoryCheckpoint plain = MemoryCheckpoint::copy_of(*Checkpoint::open(fixture("gpt_oss")));
  for (auto& [name, tensor] : plain.tensors_) {
    if (!tensor.has_scales()) continue;
    tensor = dequantize(tensor, Format::bf16).transpose(1, 2).contiguous_copy();
  }
  // Half of the rows differ by less: rounded weights choose other experts for some tokens.
  const auto difference = [&](const char* weights) {
    LoadOptions options;
    options.weights = weights;
    Session session(std::make_shared<LoadedModel>(plain, nullptr, options), exact_session());
    const Tensor logits = session.forward_all(expected.tokens);
    std::vector<double> rows;
    for (int64_t i = 0; i < logits.size(0); ++i) {
      rows.push_back(worst_row(logits.slice(0, i, i + 1), expected.logits.slice(0, i, i + 1)));
    }
    std::sort(rows.begin(), rows.end());
    return rows[rows.size() / 2];
  };
  EXPECT_LT(difference(""), kTolerance);  // E2M1 times a power of two is exact in bf16
  EXPECT_LT(difference("int8"), 0.05);
  EXPECT_LT(difference("fp8_row"), 0.2);
  EXPECT_GT(difference("fp8_row"), 0.05);
}

// --- each of these small mistakes must break the tests above -------------------------------------

struct Mutation {
  const char* name;
  const char* fixture;
  void (*apply)(MemoryCheckpoint&);
};

void PrintTo(const Mutation& m, std::ostream* out) { *out << m.name; }

const Mutation kMutations[] = {
    {"RopeStyle", "llama",
     [](MemoryCheckpoint& c) { c.config_.rope.style = RopeStyle::interleaved; }},
    {"RopeTheta", "llama", [](MemoryCheckpoint& c) { c.config_.rope.theta *= 1.01; }},
    {"RopeScalingLeftOut", "llama3_rope",
     [](MemoryCheckpoint& c) { c.config_.rope.llama3.reset(); }},
    {"RopeScalingFactor", "llama3_rope",
     [](MemoryCheckpoint& c) { c.config_.rope.llama3->high_freq_factor = 3.5; }},
    {"LinearFactor", "llama_linear",
     [](MemoryCheckpoint& c) { c.config_.rope.linear->factor = 4.01; }},
    {"DynamicLength", "llama_dynamic",
     [](MemoryCheckpoint& c) { c.config_.rope.dynamic->original_max_position = 25; }},
    {"YarnMagnitude", "llama_yarn",
     [](MemoryCheckpoint& c) { c.config_.rope.yarn->attention_factor = 1; }},
    {"YarnBeta", "llama_yarn", [](MemoryCheckpoint& c) { c.config_.rope.yarn->beta_slow = 0.5; }},
    {"LongRopeLength", "llama_longrope",
     [](MemoryCheckpoint& c) { c.config_.rope.longrope->original_max_position = 40; }},
    {"WindowOffByOne", "mistral", [](MemoryCheckpoint& c) { c.config_.windows[1] = 9; }},
    {"WindowOfTheWrongLayer", "qwen2_window",
     [](MemoryCheckpoint& c) { std::swap(c.config_.windows[0], c.config_.windows[1]); }},
    {"OneBias", "qwen2",
     [](MemoryCheckpoint& c) {
       Tensor& bias = c.tensors_["model.layers.1.self_attn.k_proj.bias"];
       bias = Tensor::zeros(bias.shape(), bias.format());
     }},
    {"GateAndUpSwapped", "mixtral",
     [](MemoryCheckpoint& c) {
       std::swap(c.tensors_["model.layers.1.block_sparse_moe.experts.2.w1.weight"],
                 c.tensors_["model.layers.1.block_sparse_moe.experts.2.w3.weight"]);
     }},
    {"Sinks", "gpt_oss",
     [](MemoryCheckpoint& c) {
       Tensor& sinks = c.tensors_["model.layers.1.self_attn.sinks"];
       sinks = Tensor::zeros(sinks.shape(), sinks.format());
     }},
    {"ClampOfTheGate", "gpt_oss", [](MemoryCheckpoint& c) { c.config_.gated.limit = 8; }},
    {"OneScaleOfMxfp4", "gpt_oss",
     [](MemoryCheckpoint& c) {
       Tensor& w = c.tensors_["model.layers.1.mlp.experts.gate_up_proj"];
       Tensor scales = w.scales().contiguous_copy();
       for (int64_t i = 0; i < scales.size(0); ++i) scales.data<uint8_t>()[i * 128 + 5] += 1;
       w = w.quantized(w.scaling(), scales);
     }},
    {"QkNormLeftOut", "qwen3",
     [](MemoryCheckpoint& c) {
       c.config_.qk_norm = false;
       for (const std::string& name : c.names()) {
         if (name.find("_norm.weight") != std::string::npos &&
             name.find("self_attn") != std::string::npos) {
           c.tensors_.erase(name);
         }
       }
     }},
    {"RouterWeightsNotNormalised", "qwen3_moe",
     [](MemoryCheckpoint& c) { c.config_.renormalize = false; }},
    {"OneExpertATokenLess", "qwen3_moe",
     [](MemoryCheckpoint& c) { c.config_.experts_per_token = 1; }},
    {"ExpertsSwapped", "qwen3_moe",
     [](MemoryCheckpoint& c) {
       std::swap(c.tensors_["model.layers.1.mlp.experts.2.up_proj.weight"],
                 c.tensors_["model.layers.1.mlp.experts.5.up_proj.weight"]);
     }},
    {"NormEpsilon", "llama", [](MemoryCheckpoint& c) { c.config_.rms_eps = 3e-4f; }},
    {"HeadsGroupedWrongly", "llama",
     [](MemoryCheckpoint& c) {
       // Keys of the two groups swapped, values not.
       for (const char* layer : {"0", "1"}) {
         Tensor& k = c.tensors_["model.layers." + std::string(layer) + ".self_attn.k_proj.weight"];
         const Tensor first = k.slice(0, 0, 16).contiguous_copy();
         k = k.contiguous_copy();
         float* rows = k.data<float>();
         const int64_t half = k.numel() / 2;
         std::copy_n(rows + half, half, rows);
         std::copy_n(first.data<float>(), half, rows + half);
       }
     }},
    {"OneScaleOfFp8", "qwen3_fp8",
     [](MemoryCheckpoint& c) {
       Tensor& w = c.tensors_["model.layers.0.mlp.up_proj.weight"];
       Tensor scales = w.scales().contiguous_copy();
       ASSERT_EQ(scales.format(), Format::f32);
       scales.data<float>()[scales.numel() - 1] *= 2;  // the corner block of 8x8
       w = w.quantized(w.scaling(), scales);
     }},
    {"OneScaleOfNvfp4", "llama_nvfp4",
     [](MemoryCheckpoint& c) {
       Tensor& w = c.tensors_["model.layers.0.self_attn.q_proj.weight"];
       Tensor scales = w.scales().contiguous_copy();
       scales.data<uint8_t>()[5] ^= 8;  // the lowest bit of the exponent
       w = w.quantized(w.scaling(), scales, w.tensor_scale());
     }},
};

class LogitsMutationTest : public ::testing::TestWithParam<Mutation> {};

TEST_P(LogitsMutationTest, IsNoticed) {
  const Mutation& mutation = GetParam();
  const Expected expected = expected_of(mutation.fixture);
  MemoryCheckpoint checkpoint =
      MemoryCheckpoint::copy_of(*Checkpoint::open(fixture(mutation.fixture)));
  const auto difference = [&] {
    return difference_of(std::make_shared<LoadedModel>(checkpoint, nullptr, LoadOptions()),
                         expected);
  };
  EXPECT_LT(difference(), kTolerance) << "before the mutation";
  mutation.apply(checkpoint);
  EXPECT_GT(difference(), 2 * kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Mutations, LogitsMutationTest, ::testing::ValuesIn(kMutations),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace halftone

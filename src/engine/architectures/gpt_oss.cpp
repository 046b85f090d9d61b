// gpt-oss: experts in every layer, stacked, with gate and up rows interleaved and biases
// everywhere; softmax over the chosen experts; a clamped SwiGLU; a learned sink a head; every
// second layer sees a window; YaRN with fractional bounds.
#include "engine/checkpoint/weight_reader.h"
#include "engine/json.h"
#include "engine/limits.h"
#include "engine/model/architecture.h"
#include "engine/model/model.h"

namespace halftone {

namespace {

void configure(const JsonField& root, ModelConfig& model) {
  model.attention_bias = root["attention_bias"].boolean_or(true);
  model.attention_sinks = true;
  model.router_bias = true;
  read_expert_counts(root, "num_local_experts", model);
  model.expert_intermediate = model.intermediate;
  model.renormalize = true;
  model.sparse_layer.assign(static_cast<size_t>(model.layers), true);
  model.gated = GatedActivation::gpt_oss(
      1.702f, static_cast<float>(root["swiglu_limit"].number_or(7, 1e-3, 1e6)));
  read_windows(root, model, root["sliding_window"].integer_or(128, 1, kMaxIndex),
               [](const JsonField&, int64_t layer) { return layer % 2 == 0; });
  if (!root["rope_parameters"].present() && !root["rope_scaling"].present()) {
    model.rope.yarn = YarnScaling{.factor = 32, .truncate = false};
  }
}

void read_experts(WeightReader& reader, const ModelConfig& c, const std::string& layer,
                  LayerWeights& weights) {
  const std::string experts = layer + "mlp.experts.";
  ExpertTensors tensors;
  tensors.interleaved = true;
  tensors.gate_up = weights.gate_up =
      reader.stacked(experts + "gate_up_proj", c.experts, 2 * c.expert_intermediate, c.hidden);
  tensors.all_down =
      reader.stacked(experts + "down_proj", c.experts, c.hidden, c.expert_intermediate);
  tensors.gate_up_bias =
      reader.tensor(experts + "gate_up_proj_bias", {c.experts, 2 * c.expert_intermediate});
  tensors.down_bias = reader.tensor(experts + "down_proj_bias", {c.experts, c.hidden});
  weights.experts = bind_experts(moe_problem(c, weights.gate_up), std::move(tensors));
}

}  // namespace

const Architecture kGptOss = {
    "GptOssForCausalLM",           "gpt_oss",   configure, 64, 131072, 150000,
    {"mlp.router", "mlp.experts"}, read_experts};

}  // namespace halftone

// Qwen3-MoE: Qwen3 with experts in some layers.
#include "engine/architectures/qwen.h"

namespace halftone {

namespace {

void configure(const JsonField& root, ModelConfig& model) {
  model.qk_norm = true;
  read_qwen_windows(root, model);
  read_expert_counts(root, "num_experts", model);
  model.expert_intermediate = root["moe_intermediate_size"].integer(1, kMaxWidth);
  model.renormalize = root["norm_topk_prob"].boolean_or(false);
  const int64_t step = root["decoder_sparse_step"].integer_or(1, 1, kMaxCount);
  for (int64_t i = 0; i < model.layers; ++i) {
    model.sparse_layer[static_cast<size_t>(i)] = (i + 1) % step == 0;
  }
  for (const JsonField& dense : root["mlp_only_layers"].items()) {
    model.sparse_layer[static_cast<size_t>(dense.integer(0, model.layers - 1))] = false;
  }
}

}  // namespace

const Architecture kQwen3Moe = {"Qwen3MoeForCausalLM", "qwen3_moe", configure, 128, 32768};

}  // namespace halftone

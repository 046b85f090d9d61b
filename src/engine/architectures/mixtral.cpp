// Mixtral: Mistral with experts in every layer. Softmax over all experts, renormalised over the
// chosen, which is the softmax over the chosen.
#include "engine/json.h"
#include "engine/limits.h"
#include "engine/model/architecture.h"

namespace halftone {

namespace {

void configure(const JsonField& root, ModelConfig& model) {
  read_expert_counts(root, "num_local_experts", model);
  model.expert_intermediate = model.intermediate;
  model.renormalize = true;
  model.sparse_layer.assign(static_cast<size_t>(model.layers), true);
  read_windows(root, model, root["sliding_window"].integer_or(0, 1, kMaxIndex),
               [](const JsonField&, int64_t) { return true; });
}

}  // namespace

const Architecture kMixtral = {
    "MixtralForCausalLM",
    "mixtral",
    configure,
    0,
    131072,
    1e6,
    {"block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2"}};

}  // namespace halftone

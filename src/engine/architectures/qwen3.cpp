// Qwen3: an RMS norm on each head of q and k before the rotation; head_dim is 128 whatever
// hidden_size / heads is.
#include "engine/architectures/qwen.h"

namespace halftone {

namespace {

void configure(const JsonField& root, ModelConfig& model) {
  model.qk_norm = true;
  read_qwen_windows(root, model);
}

}  // namespace

const Architecture kQwen3 = {"Qwen3ForCausalLM", "qwen3", configure, 128, 32768};

}  // namespace halftone

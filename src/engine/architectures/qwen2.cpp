// Qwen2 and Qwen2.5: Llama with biases on q, k and v.
#include "engine/architectures/qwen.h"

namespace halftone {

namespace {

void configure(const JsonField& root, ModelConfig& model) {
  model.attention_bias = true;
  read_qwen_windows(root, model);
}

}  // namespace

const Architecture kQwen2 = {"Qwen2ForCausalLM", "qwen2", configure, 0, 32768};

}  // namespace halftone

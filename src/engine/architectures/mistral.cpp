// Mistral: Llama with a sliding window in every layer (version 0.1; later ones set it to null).
#include "engine/json.h"
#include "engine/limits.h"
#include "engine/model/architecture.h"

namespace halftone {

namespace {

// 4096 where config.json says nothing; null is none.
int64_t window_of(const JsonField& root) {
  for (const Json::Member& member : root.members()) {
    if (member.key != "sliding_window") continue;
    return root["sliding_window"].integer_or(0, 1, kMaxIndex);
  }
  return 4096;
}

void configure(const JsonField& root, ModelConfig& model) {
  read_windows(root, model, window_of(root), [](const JsonField&, int64_t) { return true; });
}

}  // namespace

const Architecture kMistral = {"MistralForCausalLM", "mistral", configure, 0, 131072};

}  // namespace halftone

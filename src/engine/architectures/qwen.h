// Shared by the Qwen family: the window that use_sliding_window switches on.
#pragma once
#include "engine/json.h"
#include "engine/limits.h"
#include "engine/model/architecture.h"

namespace halftone {

// The first max_window_layers layers see everything, the others sliding_window tokens.
inline void read_qwen_windows(const JsonField& root, ModelConfig& model) {
  if (!root["use_sliding_window"].boolean_or(false)) return;
  read_windows(root, model, root["sliding_window"].integer_or(4096, 1, kMaxIndex),
               [](const JsonField& r, int64_t layer) {
                 return layer >= r["max_window_layers"].integer_or(28, 0, kMaxCount);
               });
}

}  // namespace halftone

// What the engine must know of a model architecture beyond the keys that all configurations share.
// One file of src/engine/architectures each, listed in architecture.cpp.
#pragma once
#include <string>
#include <vector>

#include "halftone/engine.h"

namespace halftone {

class JsonField;
class WeightReader;
struct LayerWeights;

// Names of a sparse layer's tensors below "model.layers.N.".
struct ExpertNames {
  const char* router = "mlp.gate";
  const char* experts = "mlp.experts";  // ".3." and one of these follow
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
};

struct Architecture {
  const char* name;        // in config.json's "architectures"
  const char* model_type;  // in config.json
  // Reads the keys of this architecture alone and sets what they mean; runs when everything that
  // all share is in the configuration.
  void (*configure)(const JsonField& root, ModelConfig&) = nullptr;
  // Of keys that config.json leaves out.
  int64_t default_head_dim = 0;  // 0: hidden_size / heads
  int64_t default_positions = 2048;
  double default_theta = 10000;
  ExpertNames experts = {};
  // Reads the experts of a sparse layer that stores them otherwise than one matrix each.
  void (*read_experts)(WeightReader&, const ModelConfig&, const std::string& layer,
                       LayerWeights&) = nullptr;
};

// Null when no such architecture runs here.
const Architecture* find_architecture(const std::string& name);
std::vector<std::string> architecture_names();

// --- shared by architectures ---------------------------------------------------------------------

// The window of each layer: `sliding_window` tokens where "layer_types" says "sliding_attention",
// or without that key where `slides(i)` holds; all tokens elsewhere.
void read_windows(const JsonField& root, ModelConfig&, int64_t sliding_window,
                  bool (*slides)(const JsonField& root, int64_t layer));
// num_experts or num_local_experts, num_experts_per_tok.
void read_expert_counts(const JsonField& root, const char* experts_key, ModelConfig&);

extern const Architecture kGptOss, kLlama, kMistral, kMixtral, kQwen2, kQwen3, kQwen3Moe;

}  // namespace halftone

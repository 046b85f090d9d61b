#include "engine/model/architecture.h"

#include "engine/json.h"
#include "engine/limits.h"

namespace halftone {

namespace {
constexpr const Architecture* kArchitectures[] = {&kGptOss, &kLlama, &kMistral, &kMixtral,
                                                  &kQwen2,  &kQwen3, &kQwen3Moe};
}  // namespace

const Architecture* find_architecture(const std::string& name) {
  for (const Architecture* architecture : kArchitectures) {
    if (name == architecture->name) return architecture;
  }
  return nullptr;
}

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const Architecture* architecture : kArchitectures) names.emplace_back(architecture->name);
  return names;
}

void read_windows(const JsonField& root, ModelConfig& model, int64_t sliding_window,
                  bool (*slides)(const JsonField& root, int64_t layer)) {
  const JsonField types = root["layer_types"];
  const std::vector<JsonField> items = types.items();
  if (types.present() && static_cast<int64_t>(items.size()) != model.layers) {
    types.malformed(" has ", items.size(), " entries; num_hidden_layers is ", model.layers);
  }
  model.windows.assign(static_cast<size_t>(model.layers), 0);
  for (int64_t i = 0; i < model.layers; ++i) {
    bool sliding = false;
    if (types.present()) {
      const JsonField& item = items[static_cast<size_t>(i)];
      const std::string& type = item.text();
      if (type != "sliding_attention" && type != "full_attention") {
        item.unsupported(" is ", quote(type),
                         "; \"full_attention\" and \"sliding_attention\" are implemented");
      }
      sliding = type == "sliding_attention";
      if (sliding && sliding_window == 0) {
        item.malformed(" is \"sliding_attention\", but there is no sliding_window");
      }
    } else {
      sliding = sliding_window > 0 && slides(root, i);
    }
    if (sliding) model.windows[static_cast<size_t>(i)] = sliding_window;
  }
}

void read_expert_counts(const JsonField& root, const char* experts_key, ModelConfig& model) {
  model.experts = root[experts_key].integer(1, kMaxCount);
  model.experts_per_token = root["num_experts_per_tok"].integer(1, model.experts);
}

}  // namespace halftone

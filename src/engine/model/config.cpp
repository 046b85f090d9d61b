#include "engine/model/config.h"

#include <unistd.h>

#include <algorithm>

#include "engine/limits.h"
#include "engine/model/architecture.h"
#include "engine/model/rope_config.h"

namespace halftone {

namespace {

const Architecture& read_architecture(const JsonField& root) {
  const JsonField list = root["architectures"];
  const std::vector<JsonField> items = list.items();
  if (items.size() != 1) list.expected("an array of one name");
  const std::string& name = items[0].text();
  if (const Architecture* architecture = find_architecture(name)) return *architecture;
  const std::vector<std::string> known = architecture_names();
  std::string names;
  for (const std::string& k : known) names += (names.empty() ? "" : ", ") + k;
  items[0].unsupported(" is ", quote(name), "; this version runs ", names, "; the nearest is ",
                       nearest(name, known));
}

std::vector<int32_t> read_tokens(const JsonField& field, int64_t vocabulary) {
  std::vector<int32_t> tokens;
  const auto add = [&](const JsonField& item) {
    const int64_t token = item.integer(0, kMaxIndex);
    // A token outside the vocabulary can never be produced (configurations of cut-down models
    // keep the original's).
    if (token < vocabulary) tokens.push_back(static_cast<int32_t>(token));
  };
  if (!field.present()) return tokens;
  if (field.is_array()) {
    for (const JsonField& item : field.items()) add(item);
  } else {
    add(field);
  }
  return tokens;
}

// Settings that would change the computation and are not implemented.
void refuse_unknown_behaviour(const JsonField& root) {
  const JsonField act = root["hidden_act"];
  if (const std::string name = act.text_or("silu"); name != "silu" && name != "swish") {
    act.unsupported(" is ", quote(name), "; \"silu\" is implemented");
  }
  const JsonField bias = root["mlp_bias"];
  if (bias.boolean_or(false)) bias.unsupported(" is true; only false is implemented");
  const JsonField tp = root["pretraining_tp"];
  if (const int64_t parts = tp.integer_or(1, 0, kMaxCount); parts > 1) {
    tp.unsupported(" is ", parts, "; only 1 is implemented");
  }
}

}  // namespace

ModelConfig parse_model_config(const JsonField& root) {
  root.members();  // must be an object
  ModelConfig model;
  const JsonField nested = root["text_config"];
  if (nested.present()) {
    nested.unsupported(" describes the text part of a multimodal model, which this version does ",
                       "not run; text-only checkpoints (LlamaForCausalLM and others) do");
  }
  const Architecture& architecture = read_architecture(root);
  model.architecture = architecture.name;
  refuse_unknown_behaviour(root);

  model.hidden = root["hidden_size"].integer(1, kMaxWidth);
  model.layers = root["num_hidden_layers"].integer(1, kMaxCount);
  model.heads = root["num_attention_heads"].integer(1, kMaxCount);
  const JsonField kv_heads = root["num_key_value_heads"];
  model.kv_heads = kv_heads.integer_or(model.heads, 1, kMaxCount);
  if (model.heads % model.kv_heads != 0) {
    kv_heads.malformed(" is ", model.kv_heads, "; it must divide num_attention_heads, which is ",
                       model.heads);
  }
  const JsonField head_dim = root["head_dim"];
  if (head_dim.present()) {
    model.head_dim = head_dim.integer(2, kMaxCount);
  } else if (architecture.default_head_dim > 0) {
    model.head_dim = architecture.default_head_dim;
  } else {
    if (model.hidden % model.heads != 0) {
      root["hidden_size"].malformed(" is ", model.hidden,
                                    "; without head_dim it must be a multiple of ",
                                    "num_attention_heads, which is ", model.heads);
    }
    model.head_dim = model.hidden / model.heads;
  }
  if (model.head_dim % 2 != 0) {
    head_dim.malformed(" is ", model.head_dim, "; rotary embedding needs an even head_dim");
  }
  model.intermediate = root["intermediate_size"].integer(1, kMaxWidth);
  model.vocabulary = root["vocab_size"].integer(1, kMaxIndex);
  model.max_positions =
      root["max_position_embeddings"].integer_or(architecture.default_positions, 1, kMaxIndex);
  model.rms_eps = static_cast<float>(root["rms_norm_eps"].number_or(1e-6, 0, 1));
  read_rope(root, architecture.default_theta, model);
  model.tied_embeddings = root["tie_word_embeddings"].boolean_or(false);
  model.attention_bias = root["attention_bias"].boolean_or(false);
  model.sparse_layer.assign(static_cast<size_t>(model.layers), false);
  if (architecture.configure != nullptr) architecture.configure(root, model);
  model.eos = read_tokens(root["eos_token_id"], model.vocabulary);
  const std::vector<int32_t> bos = read_tokens(root["bos_token_id"], model.vocabulary);
  if (!bos.empty()) model.bos = bos.front();
  // Only the name is checked: the tensors say themselves what they are.
  const JsonField dtype = root["dtype"].present() ? root["dtype"] : root["torch_dtype"];
  const std::string type = dtype.text_or("bfloat16");
  if (type != "bfloat16" && type != "float16" && type != "float32") {
    dtype.unsupported(" is ", quote(type), "; float32, float16 and bfloat16 are implemented");
  }
  return model;
}

SamplingOptions parse_generation_config(const JsonField& root, ModelConfig& model) {
  root.members();
  SamplingOptions options;
  const JsonField eos = root["eos_token_id"];
  if (eos.present()) model.eos = read_tokens(eos, model.vocabulary);
  const std::vector<int32_t> bos = read_tokens(root["bos_token_id"], model.vocabulary);
  if (model.bos < 0 && !bos.empty()) model.bos = bos.front();
  options.repetition_penalty =
      static_cast<float>(root["repetition_penalty"].number_or(1, 1e-3, 1e3));
  // Checked even when do_sample says that they are not used.
  const auto temperature = static_cast<float>(root["temperature"].number_or(1, 0, 1e3));
  const auto top_k = static_cast<int>(root["top_k"].integer_or(0, 0, kMaxIndex));
  const auto top_p = static_cast<float>(root["top_p"].number_or(1, 0, 1));
  const auto min_p = static_cast<float>(root["min_p"].number_or(0, 0, 1));
  if (!root["do_sample"].boolean_or(false)) return options;  // greedy
  options.temperature = temperature;
  options.top_k = top_k;
  options.top_p = top_p > 0 ? top_p : 1;
  options.min_p = min_p;
  return options;
}

CheckpointConfig read_config(const std::string& directory) {
  CheckpointConfig result;
  const std::string config_path = directory + "/config.json";
  const Json config = Json::read(config_path);
  const JsonField root(&config, config_path);
  result.model = parse_model_config(root);
  result.scheme = parse_quantization_config(root["quantization_config"]);

  const std::string quantization_path = directory + "/hf_quant_config.json";
  if (!root["quantization_config"].present() && access(quantization_path.c_str(), F_OK) == 0) {
    const Json json = Json::read(quantization_path);
    const JsonField field(&json, quantization_path);
    result.scheme = parse_modelopt_config(field["quantization"]);
  }
  const std::string generation_path = directory + "/generation_config.json";
  if (access(generation_path.c_str(), F_OK) == 0) {
    const Json json = Json::read(generation_path);
    result.sampling = parse_generation_config(JsonField(&json, generation_path), result.model);
  }
  return result;
}

}  // namespace halftone

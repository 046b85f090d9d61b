#include "engine/config.h"

#include <unistd.h>

#include <algorithm>

namespace halftone {

namespace {

// Far above every known model and far below what overflows a product of two.
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxCount = int64_t{1} << 16;
constexpr int64_t kMaxIndex = std::numeric_limits<int32_t>::max();

constexpr const char* kArchitectures[] = {"LlamaForCausalLM", "Qwen3ForCausalLM",
                                          "Qwen3MoeForCausalLM"};

std::string read_architecture(const JsonField& root) {
  const JsonField list = root["architectures"];
  const std::vector<JsonField> items = list.items();
  if (items.size() != 1) list.expected("an array of one name");
  const std::string& architecture = items[0].text();
  std::vector<std::string> known(std::begin(kArchitectures), std::end(kArchitectures));
  if (std::find(known.begin(), known.end(), architecture) != known.end()) return architecture;
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  items[0].unsupported(" is ", quote(architecture), "; this version runs ", names,
                       "; the nearest is ", nearest(architecture, known));
}

// Both generations: rope_theta beside rope_scaling {rope_type|type, ...}, or rope_parameters
// {rope_type, rope_theta, ...}.
RopeOptions read_rope(const JsonField& root, int64_t head_dim) {
  RopeOptions rope;
  const JsonField parameters = root["rope_parameters"];
  const bool new_keys = parameters.present();
  const JsonField scaling = new_keys ? parameters : root["rope_scaling"];
  const JsonField theta = new_keys && parameters["rope_theta"].present() ? parameters["rope_theta"]
                                                                         : root["rope_theta"];
  rope.theta = theta.number_or(10000, 1, 1e12);
  const JsonField partial = new_keys && parameters["partial_rotary_factor"].present()
                                ? parameters["partial_rotary_factor"]
                                : root["partial_rotary_factor"];
  const double share = partial.number_or(1, 0, 1);
  if (share != 1) {
    rope.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * share);
    if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
      partial.malformed(" is ", share, ": ", rope.rotary_dim, " of ", head_dim,
                        " dimensions would rotate; the number must be even and positive");
    }
  }
  if (!scaling.present()) return rope;
  const JsonField type = scaling["rope_type"].present() ? scaling["rope_type"] : scaling["type"];
  const std::string kind = type.text_or("default");
  if (kind == "llama3") {
    Llama3Scaling s;
    s.factor = scaling["factor"].number(1, 1e6);
    s.low_freq_factor = scaling["low_freq_factor"].number(1e-6, 1e6);
    s.high_freq_factor = scaling["high_freq_factor"].number(1e-6, 1e6);
    s.original_max_position = scaling["original_max_position_embeddings"].integer(1, kMaxIndex);
    if (!(s.high_freq_factor > s.low_freq_factor)) {
      scaling["high_freq_factor"].malformed(" is ", s.high_freq_factor,
                                            "; it must exceed low_freq_factor, which is ",
                                            s.low_freq_factor);
    }
    rope.llama3 = s;
  } else if (kind != "default") {
    type.unsupported(" is ", quote(kind), "; \"default\" and \"llama3\" are implemented");
  }
  return rope;
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

void read_experts(const JsonField& root, ModelConfig& model) {
  model.experts = root["num_experts"].integer(1, kMaxCount);
  model.experts_per_token = root["num_experts_per_tok"].integer(1, model.experts);
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

// Settings that would change the computation and are not implemented.
void refuse_unknown_behaviour(const JsonField& root) {
  const JsonField act = root["hidden_act"];
  if (const std::string name = act.text_or("silu"); name != "silu" && name != "swish") {
    act.unsupported(" is ", quote(name), "; \"silu\" is implemented");
  }
  for (const char* key : {"use_sliding_window", "mlp_bias"}) {
    if (root[key].boolean_or(false)) root[key].unsupported(" is true; only false is implemented");
  }
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
                       "not run; text-only checkpoints (", kArchitectures[0], ", ",
                       kArchitectures[1], ", ", kArchitectures[2], ") do");
  }
  model.architecture = read_architecture(root);
  const bool qwen3 = model.architecture != "LlamaForCausalLM";
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
  } else if (qwen3) {
    model.head_dim = 128;  // that architecture's default, whatever hidden_size / heads is
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
      root["max_position_embeddings"].integer_or(qwen3 ? 32768 : 2048, 1, kMaxIndex);
  model.rms_eps = static_cast<float>(root["rms_norm_eps"].number_or(1e-6, 0, 1));
  model.rope = read_rope(root, model.head_dim);
  model.tied_embeddings = root["tie_word_embeddings"].boolean_or(false);
  model.attention_bias = root["attention_bias"].boolean_or(false);
  model.qk_norm = qwen3;
  model.sparse_layer.assign(static_cast<size_t>(model.layers), false);
  if (model.architecture == "Qwen3MoeForCausalLM") read_experts(root, model);
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

namespace {

std::vector<std::string> read_names(const JsonField& field) {
  std::vector<std::string> names;
  for (const JsonField& item : field.items()) names.push_back(item.text());
  return names;
}

WeightScheme read_fp8(const JsonField& field) {
  WeightScheme scheme;
  scheme.method = WeightScheme::Method::fp8;
  const JsonField format = field["fmt"];
  if (const std::string f = format.text_or("e4m3"); f != "e4m3" && f != "float8_e4m3fn") {
    format.unsupported(" is ", quote(f), "; \"e4m3\" is implemented");
  }
  const JsonField activations = field["activation_scheme"];
  if (const std::string a = activations.text_or("dynamic"); a != "dynamic") {
    activations.unsupported(" is ", quote(a), "; \"dynamic\" is implemented");
  }
  const JsonField block = field["weight_block_size"];
  if (block.present()) {
    const std::vector<JsonField> sizes = block.items();
    if (sizes.size() != 2) block.expected("an array [rows, columns]");
    scheme.block_rows = sizes[0].integer(1, kMaxWidth);
    scheme.block_cols = sizes[1].integer(1, kMaxWidth);
  } else {
    block.unsupported(" is missing; fp8 checkpoints with block scales are implemented");
  }
  scheme.excluded = read_names(field["modules_to_not_convert"]);
  return scheme;
}

// ModelOpt writes the same facts with other names into config.json ("ignore", "config_groups") and
// hf_quant_config.json ("exclude_modules", "group_size").
WeightScheme read_modelopt(const JsonField& field) {
  WeightScheme scheme;
  const JsonField algorithm = field["quant_algo"];
  const std::string name = algorithm.text_or("");
  if (name.empty()) return scheme;
  if (name != "NVFP4" && name != "NVFP4A16" && name != "W4A16_NVFP4") {
    algorithm.unsupported(" is ", quote(name),
                          "; NVFP4 (also NVFP4A16, W4A16_NVFP4) is "
                          "implemented");
  }
  scheme.method = WeightScheme::Method::nvfp4;
  const auto check_group = [](const JsonField& group) {
    if (const int64_t size = group.integer_or(16, 1, kMaxWidth); size != 16) {
      group.malformed(" is ", size, "; NVFP4 is defined with groups of 16");
    }
  };
  check_group(field["group_size"]);
  const JsonField groups = field["config_groups"];
  if (groups.present()) {
    for (const Json::Member& member : groups.members()) {
      check_group(groups[member.key]["weights"]["group_size"]);
    }
  }
  const JsonField excluded =
      field["exclude_modules"].present() ? field["exclude_modules"] : field["ignore"];
  scheme.excluded = read_names(excluded);
  return scheme;
}

}  // namespace

WeightScheme parse_quantization_config(const JsonField& field) {
  if (!field.present()) return {};
  const JsonField method = field["quant_method"];
  const std::string& name = method.text();
  if (name == "fp8") return read_fp8(field);
  if (name == "modelopt" || name == "modelopt_fp4") return read_modelopt(field);
  method.unsupported(" is ", quote(name),
                     "; \"fp8\" (blocks with weight_scale_inv) and \"modelopt\" (NVFP4) are "
                     "implemented");
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
    result.scheme = read_modelopt(field["quantization"]);
  }
  const std::string generation_path = directory + "/generation_config.json";
  if (access(generation_path.c_str(), F_OK) == 0) {
    const Json json = Json::read(generation_path);
    result.sampling = parse_generation_config(JsonField(&json, generation_path), result.model);
  }
  return result;
}

}  // namespace halftone

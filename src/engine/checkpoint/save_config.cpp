#include "engine/checkpoint/save_config.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/message.h"
#include "engine/checkpoint/written_parts.h"
#include "engine/model/architecture.h"

namespace halftone {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Modules that keep 16 bits in a quantised checkpoint: the head, and the router of each layer.
Json excluded_modules(const ModelConfig& config) {
  const Architecture* architecture = find_architecture(config.architecture);
  Json modules = {"lm_head"};
  for (size_t i = 0; i < config.sparse_layer.size(); ++i) {
    if (!config.sparse_layer[i]) continue;
    modules.push_back(concat("model.layers.", i, ".", architecture->experts.router));
  }
  return modules;
}

Json producer() { return {{"name", "halftone"}, {"version", "0.1.0"}}; }

// The weights alone are in 4 bits; there are no activation scales.
constexpr const char* kNvfp4Algorithm = "W4A16_NVFP4";

Json compressed_tensors_config(const ModelConfig& config, const QuantizeOptions& options) {
  const Scaling& s = options.scaling;
  const char* format = compressed_tensors_format(options.format);
  const bool integer = options.format == Format::int8 || options.format == Format::int4;
  Json weights = {{"num_bits", bits(options.format)},
                  {"type", integer ? "int" : "float"},
                  {"symmetric", true},
                  {"dynamic", false},
                  {"strategy", s.block_cols > 0    ? "group"
                               : s.block_rows == 1 ? "channel"
                                                   : "tensor"}};
  if (s.block_cols > 0) weights["group_size"] = s.block_cols;
  if (s.format == Format::ue8m0) weights["scale_dtype"] = "torch.uint8";
  // Readers multiply INT8 weights with activations rounded to INT8, a token at a time; the others
  // are weights alone.
  Json activations = nullptr;
  if (options.format == Format::int8) {
    activations = {{"num_bits", 8},
                   {"type", "int"},
                   {"strategy", "token"},
                   {"symmetric", true},
                   {"dynamic", true}};
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"format", format},
              {"weights", weights},
              {"input_activations", activations},
              {"output_activations", nullptr}}}}},
          {"ignore", excluded_modules(config)},
          {"kv_cache_scheme", nullptr}};
}

Json quantization_config(const ModelConfig& config, const QuantizeOptions& options) {
  if (options.format == Format::nvfp4) {
    return {{"quant_method", "modelopt"},
            {"quant_algo", kNvfp4Algorithm},
            {"config_groups",
             {{"group_0",
               {{"weights",
                 {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}}},
                {"targets", {"Linear"}}}}}},
            {"ignore", excluded_modules(config)},
            {"producer", producer()}};
  }
  const bool blocks = options.format == Format::fp8_e4m3 && options.scaling.block_cols > 0;
  if (!blocks) return compressed_tensors_config(config, options);
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {options.scaling.block_rows, options.scaling.block_cols}},
          {"modules_to_not_convert", excluded_modules(config)}};
}

// The double with the fewest digits that rounds to `x`: 1e-05, not 9.999999747378752e-06.
double shortest(float x) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, x);
  double result = x;
  std::from_chars(text, end.ptr, result);
  return result;
}

// config.json for a checkpoint that had none, such as llama2.c's.
Json config_of(const ModelConfig& c) {
  Json json = {{"architectures", {c.architecture}},
               {"model_type", "llama"},
               {"hidden_act", "silu"},
               {"hidden_size", c.hidden},
               {"intermediate_size", c.intermediate},
               {"num_hidden_layers", c.layers},
               {"num_attention_heads", c.heads},
               {"num_key_value_heads", c.kv_heads},
               {"head_dim", c.head_dim},
               {"vocab_size", c.vocabulary},
               {"max_position_embeddings", c.max_positions},
               {"rms_norm_eps", shortest(c.rms_eps)},
               {"rope_theta", c.rope.theta},
               {"attention_bias", c.attention_bias},
               {"mlp_bias", false},
               {"tie_word_embeddings", c.tied_embeddings},
               {"torch_dtype", "float32"}};
  if (c.bos >= 0) json["bos_token_id"] = c.bos;
  if (!c.eos.empty()) json["eos_token_id"] = c.eos;
  return json;
}

const char* torch_name(Format format) {
  return format == Format::f32 ? "float32" : format == Format::f16 ? "float16" : "bfloat16";
}

void set_dtype(Json& config, Format format) {
  // Two generations of the key; a file may have either.
  const bool new_key = config.contains("dtype");
  if (new_key) config["dtype"] = torch_name(format);
  if (!new_key || config.contains("torch_dtype")) config["torch_dtype"] = torch_name(format);
}

Json read_config(const std::string& path) {
  std::ifstream file(path);
  Json config = Json::parse(file, nullptr, false);
  if (config.is_discarded() || !config.is_object()) {
    fail(ErrorCode::malformed_file, path, " is not a JSON object");
  }
  return config;
}

void write_json(const std::string& path, const Json& json) {
  std::ofstream file(path);
  file << json.dump(2) << '\n';
  file.close();
  if (!file) fail(ErrorCode::io, "cannot write ", path);
}

void copy(const fs::path& from, const std::string& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  if (error) fail(ErrorCode::io, "cannot copy ", from.string(), ": ", error.message());
  fs::permissions(to, fs::perms::owner_write, fs::perm_options::add, error);
}

// tokenizer.bin beside a llama2.c checkpoint, or the first tok*.bin by name.
fs::path find_tokenizer_bin(const fs::path& directory) {
  if (fs::exists(directory / "tokenizer.bin")) return directory / "tokenizer.bin";
  fs::path found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool matches = name.rfind("tok", 0) == 0 && entry.path().extension() == ".bin";
    if (matches && (found.empty() || entry.path() < found)) found = entry.path();
  }
  return found;
}

}  // namespace

void write_index(const std::string& path, int64_t total_bytes,
                 const std::map<std::string, std::string>& files) {
  write_json(path, {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", files}});
}

void write_model_files(const std::string& source, const ModelConfig& config,
                       const WeightFormat& target,
                       const std::function<std::string(const char*)>& path_of) {
  const fs::path folder =
      fs::is_directory(source) ? fs::path(source) : fs::absolute(source).parent_path();
  // A llama2.c checkpoint, given as a file or as its directory, has no config.json.
  const bool described = fs::is_directory(source) && fs::exists(folder / "config.json");
  Json json = described ? read_config((folder / "config.json").string()) : config_of(config);
  json.erase("quantization_config");
  if (target.plain) set_dtype(json, *target.plain);
  if (target.quantized) {
    if (!described) set_dtype(json, Format::bf16);  // embeddings and head are rounded to it
    json["quantization_config"] = quantization_config(config, *target.quantized);
    if (target.quantized->format == Format::nvfp4) {
      write_json(path_of("hf_quant_config.json"),
                 {{"producer", producer()},
                  {"quantization",
                   {{"quant_algo", kNvfp4Algorithm},
                    {"kv_cache_quant_algo", nullptr},
                    {"group_size", 16},
                    {"exclude_modules", excluded_modules(config)}}}});
    }
  }
  write_json(path_of("config.json"), json);

  if (!described) {
    const fs::path tokenizer = find_tokenizer_bin(folder);
    if (!tokenizer.empty()) copy(tokenizer, path_of("tokenizer.bin"));
    return;
  }
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "added_tokens.json", "generation_config.json", "chat_template.jinja",
                           "tokenizer.model", "tokenizer.bin", "vocab.json", "merges.txt"}) {
    const fs::path file = folder / name;
    if (fs::exists(file)) copy(file, path_of(name));
  }
}

}  // namespace halftone

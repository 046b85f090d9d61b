#include "engine/model/model.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/message.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/weight_reader.h"
#include "engine/model/architecture.h"
#include "halftone/memory.h"

namespace halftone {

namespace {

void check_config(const ModelConfig& c) {
  if (find_architecture(c.architecture) == nullptr) {
    fail(ErrorCode::unsupported, "architecture \"", c.architecture,
         "\" is not supported; the nearest that is: \"",
         nearest(c.architecture, architecture_names()), "\"");
  }
  const auto positive = [](const char* field, int64_t value) {
    if (value < 1) {
      fail(ErrorCode::malformed_file, "config.json: ", field, " is ", value,
           "; it must be at least 1");
    }
  };
  positive("hidden_size", c.hidden);
  positive("num_hidden_layers", c.layers);
  positive("num_attention_heads", c.heads);
  positive("num_key_value_heads", c.kv_heads);
  positive("head_dim", c.head_dim);
  positive("vocab_size", c.vocabulary);
  if (c.heads % c.kv_heads != 0) {
    fail(ErrorCode::malformed_file, "config.json: num_attention_heads ", c.heads,
         " is not a multiple of num_key_value_heads ", c.kv_heads);
  }
  const auto sparse = std::count(c.sparse_layer.begin(), c.sparse_layer.end(), true);
  if (sparse < c.layers) positive("intermediate_size", c.intermediate);
  if (sparse > 0) {
    positive("num_experts", c.experts);
    positive("moe_intermediate_size", c.expert_intermediate);
    if (c.experts_per_token < 1 || c.experts_per_token > c.experts) {
      fail(ErrorCode::malformed_file, "config.json: num_experts_per_tok is ", c.experts_per_token,
           "; it must be 1 to num_experts, ", c.experts);
    }
  }
  if (c.head_dim % 2 != 0) {
    fail(ErrorCode::malformed_file, "config.json: head_dim is ", c.head_dim,
         "; rotary embeddings need an even one");
  }
}

}  // namespace

MoeProblem moe_problem(const ModelConfig& c, const Tensor& matrix) {
  MoeProblem problem;
  problem.hidden = c.hidden;
  problem.intermediate = c.expert_intermediate;
  problem.experts = c.experts;
  problem.top_k = static_cast<int>(c.experts_per_token);
  problem.gated = c.gated;
  problem.weight = matrix.format();
  problem.scaled = matrix.has_scales();
  if (problem.scaled) problem.scaling = matrix.scaling();
  return problem;
}

namespace {

// Of keys or of values ("k"): beside the projection, as ModelOpt writes it, or beside the layer's
// attention, as compressed-tensors does.
float cache_scale(WeightReader& reader, const std::string& attention, const std::string& of) {
  const auto beside = reader.scale(concat(attention, of, "_proj.", of, "_scale"));
  return beside ? *beside : reader.scale(concat(attention, of, "_scale")).value_or(0.0f);
}

LayerWeights read_layer(WeightReader& reader, const ModelConfig& c, int64_t index) {
  const std::string base = concat("model.layers.", index, ".");
  const std::string attention = base + "self_attn.";
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  LayerWeights layer;
  layer.input_norm = reader.vector(base + "input_layernorm.weight", c.hidden);
  layer.q = reader.matrix(attention + "q_proj", q, c.hidden);
  layer.k = reader.matrix(attention + "k_proj", kv, c.hidden);
  layer.v = reader.matrix(attention + "v_proj", kv, c.hidden);
  layer.o = reader.matrix(attention + "o_proj", c.hidden, q);
  if (c.attention_bias) {
    layer.q_bias = reader.bias(attention + "q_proj.bias", q);
    layer.k_bias = reader.bias(attention + "k_proj.bias", kv);
    layer.v_bias = reader.bias(attention + "v_proj.bias", kv);
    if (reader.contains(attention + "o_proj.bias")) {
      layer.o_bias = reader.bias(attention + "o_proj.bias", c.hidden);
    }
  }
  if (c.attention_sinks) layer.sinks = reader.bias(attention + "sinks", c.heads);
  if (c.qk_norm) {
    layer.q_norm = reader.vector(attention + "q_norm.weight", c.head_dim);
    layer.k_norm = reader.vector(attention + "k_norm.weight", c.head_dim);
  }
  layer.k_scale = cache_scale(reader, attention, "k");
  layer.v_scale = cache_scale(reader, attention, "v");
  layer.post_norm = reader.vector(base + "post_attention_layernorm.weight", c.hidden);

  const std::string mlp = base + "mlp.";
  layer.sparse =
      index < static_cast<int64_t>(c.sparse_layer.size()) && c.sparse_layer[size_t(index)];
  if (!layer.sparse) {
    layer.gate = reader.matrix(mlp + "gate_proj", c.intermediate, c.hidden);
    layer.up = reader.matrix(mlp + "up_proj", c.intermediate, c.hidden);
    layer.down = reader.matrix(mlp + "down_proj", c.hidden, c.intermediate);
    return layer;
  }
  const Architecture& architecture = *find_architecture(c.architecture);
  const ExpertNames& names = architecture.experts;
  layer.router = reader.matrix(base + names.router, c.experts, c.hidden);
  if (c.router_bias)
    layer.router_bias = reader.bias(concat(base, names.router, ".bias"), c.experts);
  if (architecture.read_experts != nullptr) {
    architecture.read_experts(reader, c, base, layer);
    return layer;
  }
  for (int64_t e = 0; e < c.experts; ++e) {
    const std::string expert = concat(base, names.experts, ".", e, ".");
    layer.expert_gate.push_back(
        reader.matrix(expert + names.gate, c.expert_intermediate, c.hidden));
    layer.expert_up.push_back(reader.matrix(expert + names.up, c.expert_intermediate, c.hidden));
    layer.expert_down.push_back(
        reader.matrix(expert + names.down, c.hidden, c.expert_intermediate));
  }
  // A GPU's kernels find an expert by its index, in a table made here.
  if (!layer.router.device().is_cpu()) {
    ExpertTensors experts;
    experts.gate = layer.expert_gate, experts.up = layer.expert_up;
    experts.down = layer.expert_down;
    layer.experts = bind_experts(moe_problem(c, layer.typical()), std::move(experts));
  }
  return layer;
}

// Whether a tokenizer's file lies in the model's directory, or beside its single file.
bool has_tokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::is_directory(path) ? fs::path(path) : fs::absolute(path).parent_path();
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == "tokenizer.json" || name == "tokenizer.model") return true;
    if (entry.path().extension() == ".tiktoken") return true;
    if (name.rfind("tok", 0) == 0 && entry.path().extension() == ".bin") return true;
  }
  return false;
}

std::string format_text(const Tensor& weight) {
  if (!weight.has_scales()) return name(weight.format());
  QuantizeOptions options(weight.format());
  options.scaling = weight.scaling();
  return to_string(options);
}

}  // namespace

LoadedModel::LoadedModel(const Checkpoint& checkpoint, std::unique_ptr<Tokenizer> tokenizer,
                         const LoadOptions& options, Contents contents)
    : config_(checkpoint.config()),
      sampling_(checkpoint.default_sampling()),
      tokenizer_(std::move(tokenizer)),
      device_(options.device) {
  check_config(config_);
  WeightReader reader(checkpoint, options, contents);
  embedding_ = reader.matrix("model.embed_tokens", config_.vocabulary, config_.hidden);
  for (int64_t i = 0; i < config_.layers; ++i) layers_.push_back(read_layer(reader, config_, i));
  final_norm_ = reader.vector("model.norm.weight", config_.hidden);
  if (config_.tied_embeddings) {
    head_ = embedding_;
    reader.ignore("lm_head.weight");  // some files repeat the table
  } else {
    head_ = reader.matrix("lm_head", config_.vocabulary, config_.hidden);
  }
  reader.finish();
  weight_bytes_ = reader.bytes();
  parameters_ = reader.parameters();
}

const Tokenizer& LoadedModel::tokenizer() const {
  if (!tokenizer_) {
    fail(ErrorCode::io,
         "the model has no tokenizer: put tokenizer.json or tokenizer.bin beside it");
  }
  return *tokenizer_;
}

std::string LoadedModel::describe() const {
  const Tensor& matrix = layers_.front().typical();
  std::ostringstream text;
  text.precision(3);
  const double millions = static_cast<double>(parameters_) / 1e6;
  text << config_.architecture << ", ";
  if (millions >= 1000) {
    text << millions / 1000 << " B parameters, ";
  } else {
    text << millions << " M parameters, ";
  }
  text << config_.layers << " layers, weights " << format_text(matrix) << ", embeddings "
       << format_text(embedding_);
  if (config_.experts > 0) {
    text << ", " << config_.experts_per_token << " of " << config_.experts << " experts a token";
  }
  return text.str();
}

MemoryNeed memory_needed(const Checkpoint& checkpoint, const LoadOptions& load,
                         const SessionOptions& session) {
  LoadOptions quiet = load;
  quiet.progress = nullptr;
  const auto model = std::make_shared<LoadedModel>(checkpoint, nullptr, quiet, Contents::none);
  return {model->weight_bytes(), Session(model, session).bytes_when_full()};
}

MemoryNeed memory_needed(const std::string& path, const LoadOptions& load,
                         const SessionOptions& session) {
  return memory_needed(*Checkpoint::open(path), load, session);
}

namespace {

// Told before the first byte is read, not after minutes.
void check_memory(const Checkpoint& checkpoint, const std::string& path, LoadOptions options) {
  if (options.device.kind() != Device::Kind::cuda) return;
  options.progress = nullptr;
  const int64_t needed = LoadedModel(checkpoint, nullptr, options, Contents::none).weight_bytes();
  const DeviceMemory memory = device_memory(options.device);
  if (needed <= memory.free) return;
  fail(ErrorCode::out_of_memory, "the weights of ", path, " need ", needed, " bytes on ",
       options.device.name(), ", where ", memory.free, " of ", memory.total,
       " are free; choose weights in fewer bits");
}

}  // namespace

std::shared_ptr<const Model> Model::load(const std::string& path, const LoadOptions& options) {
  parse_weight_format(options.weights);  // a wrong name is told before files are read
  const std::unique_ptr<Checkpoint> checkpoint = Checkpoint::open(path);
  // A model without a tokenizer can still be run on tokens.
  std::unique_ptr<Tokenizer> tokenizer;
  if (has_tokenizer(path)) tokenizer = Tokenizer::load(path, checkpoint->config().vocabulary);
  check_memory(*checkpoint, path, options);
  auto model = std::make_shared<LoadedModel>(*checkpoint, std::move(tokenizer), options);
  check_mapped_files();
  return model;
}

}  // namespace halftone

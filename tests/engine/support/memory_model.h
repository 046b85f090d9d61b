// Small models made in memory: any shape, any weights, no files.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/model.h"
#include "engine/model/weights.h"
#include "support/compare.h"

namespace halftone::test {

// A checkpoint held in a map, or another one's tensors under another configuration.
class MemoryCheckpoint : public Checkpoint {
 public:
  const ModelConfig& config() const override { return config_; }
  const SamplingOptions& default_sampling() const override { return sampling_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : tensors_) result.push_back(name);
    return result;
  }
  bool contains(const std::string& name) const override { return tensors_.count(name) > 0; }
  Tensor tensor(const std::string& name) const override { return tensors_.at(name); }
  Tensor weight(const std::string& prefix) const override {
    const auto stacked = tensors_.find(prefix);
    return stacked != tensors_.end() ? stacked->second : tensors_.at(prefix + ".weight");
  }

  // Everything of `other` as it is, so that a test can then change the configuration.
  static MemoryCheckpoint copy_of(const Checkpoint& other) {
    MemoryCheckpoint result;
    result.config_ = other.config();
    for (const std::string& name : other.names()) {
      result.tensors_[name] = stored_tensor(other, name);
    }
    return result;
  }

  ModelConfig config_;
  SamplingOptions sampling_;
  std::map<std::string, Tensor> tensors_;
};

// One token per byte: ids 0..255; 256 is bos, 257 eos.
class ByteTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kBos = 256, kEos = 257, kSize = 258;
  std::vector<int32_t> encode(std::string_view text, bool special) const override {
    std::vector<int32_t> tokens;
    if (special) tokens.push_back(kBos);
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string decode(std::span<const int32_t> tokens, bool) const override {
    std::string text;
    for (const int32_t token : tokens) text += piece(token);
    return text;
  }
  std::string piece(int32_t token, int32_t = -1) const override {
    return token < 256 ? std::string(1, static_cast<char>(token)) : std::string();
  }
  int64_t size() const override { return kSize; }
};

inline ModelConfig small_config() {
  ModelConfig c;
  c.architecture = "LlamaForCausalLM";
  c.hidden = 128;
  c.layers = 3;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 32;
  c.intermediate = 256;
  c.vocabulary = ByteTokenizer::kSize;
  c.max_positions = 1024;
  c.bos = ByteTokenizer::kBos;
  c.eos = {ByteTokenizer::kEos};
  return c;
}

inline ModelConfig small_moe_config() {
  ModelConfig c = small_config();
  c.architecture = "Qwen3MoeForCausalLM";
  c.qk_norm = true;
  c.experts = 8;
  c.experts_per_token = 2;
  c.expert_intermediate = 64;
  c.sparse_layer = {true, false, true};
  return c;
}

// Normal weights scaled so that every layer keeps the size of its input.
inline MemoryCheckpoint random_checkpoint(const ModelConfig& c, Format format = Format::f32,
                                          uint64_t seed = 1) {
  MemoryCheckpoint result;
  result.config_ = c;
  const auto add = [&](const std::string& name, const Shape& shape, float mean, float deviation) {
    std::vector<float> values = random_values(element_count(shape), seed++);
    for (float& x : values) x = mean + deviation * x;
    const Tensor f32 = Tensor::from<float>(values, shape, Format::f32);
    result.tensors_[name] = format == Format::f32 ? f32 : convert(f32, format);
  };
  const auto matrix = [&](const std::string& name, int64_t n, int64_t k) {
    add(name + ".weight", {n, k}, 0.0f, 1.0f / std::sqrt(static_cast<float>(k)));
  };
  const auto norm = [&](const std::string& name, int64_t n) { add(name, {n}, 1.0f, 0.1f); };

  add("model.embed_tokens.weight", {c.vocabulary, c.hidden}, 0.0f, 1.0f);
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string base = "model.layers." + std::to_string(i) + ".";
    norm(base + "input_layernorm.weight", c.hidden);
    norm(base + "post_attention_layernorm.weight", c.hidden);
    matrix(base + "self_attn.q_proj", c.heads * c.head_dim, c.hidden);
    matrix(base + "self_attn.k_proj", c.kv_heads * c.head_dim, c.hidden);
    matrix(base + "self_attn.v_proj", c.kv_heads * c.head_dim, c.hidden);
    matrix(base + "self_attn.o_proj", c.hidden, c.heads * c.head_dim);
    if (c.qk_norm) {
      norm(base + "self_attn.q_norm.weight", c.head_dim);
      norm(base + "self_attn.k_norm.weight", c.head_dim);
    }
    const auto mlp = [&](const std::string& prefix, int64_t intermediate) {
      matrix(prefix + "gate_proj", intermediate, c.hidden);
      matrix(prefix + "up_proj", intermediate, c.hidden);
      matrix(prefix + "down_proj", c.hidden, intermediate);
    };
    if (!c.sparse_layer.empty() && c.sparse_layer[static_cast<size_t>(i)]) {
      matrix(base + "mlp.gate", c.experts, c.hidden);
      for (int64_t e = 0; e < c.experts; ++e) {
        mlp(base + "mlp.experts." + std::to_string(e) + ".", c.expert_intermediate);
      }
    } else {
      mlp(base + "mlp.", c.intermediate);
    }
  }
  norm("model.norm.weight", c.hidden);
  if (!c.tied_embeddings) matrix("lm_head", c.vocabulary, c.hidden);
  return result;
}

inline std::shared_ptr<const Model> make_model(const Checkpoint& checkpoint,
                                               const std::string& weights = "",
                                               const Device& device = Device::cpu()) {
  LoadOptions options;
  options.weights = weights, options.device = device;
  return std::make_shared<LoadedModel>(checkpoint, std::make_unique<ByteTokenizer>(), options);
}

inline SessionOptions exact_session(int threads = 1) {
  SessionOptions options;
  options.kv = Format::f32;
  options.threads = threads;
  return options;
}

inline std::vector<int32_t> random_tokens(int64_t count, uint64_t seed, int32_t vocabulary = 256) {
  std::mt19937_64 engine(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(engine() % static_cast<uint64_t>(vocabulary));
  }
  return tokens;
}

// |a - b| / |b| in the Euclidean norm.
inline double relative_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return std::sqrt(error / size);
}

inline std::span<const float> values_of(const Tensor& t) {
  return {t.data<float>(), static_cast<size_t>(t.numel())};
}

}  // namespace halftone::test

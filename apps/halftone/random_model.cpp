#include "random_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/device_memory.h"
#include "base/message.h"
#include "bench/gpu_data.h"
#include "halftone/quantize.h"

namespace halftone {

namespace {

ModelConfig llama_3_8b() {
  ModelConfig c;
  c.architecture = "LlamaForCausalLM";
  c.hidden = 4096, c.layers = 32, c.heads = 32, c.kv_heads = 8, c.head_dim = 128;
  c.intermediate = 14336, c.vocabulary = 128256, c.max_positions = 8192;
  c.rope.theta = 500000;
  return c;
}

ModelConfig qwen3_30b_a3b() {
  ModelConfig c;
  c.architecture = "Qwen3MoeForCausalLM";
  c.hidden = 2048, c.layers = 48, c.heads = 32, c.kv_heads = 4, c.head_dim = 128;
  c.intermediate = 6144, c.vocabulary = 151936, c.max_positions = 40960;
  c.rms_eps = 1e-6f, c.rope.theta = 1e6;
  c.qk_norm = true;
  c.experts = 128, c.experts_per_token = 8, c.expert_intermediate = 768;
  c.sparse_layer.assign(static_cast<size_t>(c.layers), true);
  return c;
}

ModelConfig gpt_oss_20b() {
  ModelConfig c;
  c.architecture = "GptOssForCausalLM";
  c.hidden = 2880, c.layers = 24, c.heads = 64, c.kv_heads = 8, c.head_dim = 64;
  c.intermediate = 2880, c.vocabulary = 201088, c.max_positions = 131072;
  c.rope.theta = 150000, c.rope.yarn = YarnScaling{.factor = 32, .truncate = false};
  c.attention_bias = c.attention_sinks = c.router_bias = true;
  c.experts = 32, c.experts_per_token = 4, c.expert_intermediate = 2880;
  c.renormalize = true, c.gated = GatedActivation::gpt_oss();
  c.sparse_layer.assign(static_cast<size_t>(c.layers), true);
  c.windows.assign(static_cast<size_t>(c.layers), 0);
  for (size_t i = 0; i < c.windows.size(); i += 2) c.windows[i] = 128;
  return c;
}

ModelConfig small() {
  ModelConfig c = llama_3_8b();
  c.hidden = 512, c.layers = 4, c.heads = 8, c.kv_heads = 2, c.head_dim = 64;
  c.intermediate = 1024, c.vocabulary = 2048, c.max_positions = 2048;
  return c;
}

}  // namespace

const std::vector<RandomModel>& random_models() {
  static const std::vector<RandomModel> models = {{"llama-3-8b", llama_3_8b()},
                                                  {"qwen3-30b-a3b", qwen3_30b_a3b()},
                                                  {"gpt-oss-20b", gpt_oss_20b()},
                                                  {"small", small()}};
  return models;
}

ModelConfig tiny_llama() {
  ModelConfig c;
  c.architecture = "LlamaForCausalLM";
  c.hidden = 64, c.layers = 5, c.heads = 8, c.kv_heads = 4, c.head_dim = 8;
  c.intermediate = 172, c.vocabulary = 512, c.max_positions = 512;
  c.tied_embeddings = true;
  return c;
}

RandomCheckpoint::RandomCheckpoint(const ModelConfig& c, const Device& device, Format format)
    : config_(c), device_(device), format_(format) {
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const auto add = [&](const std::string& name, const Shape& shape) {
    shapes_[name + ".weight"] = shape;
  };
  const bool gpt_oss = c.architecture == "GptOssForCausalLM";
  const auto gated = [&](const std::string& prefix, int64_t intermediate) {
    add(prefix + "gate_proj", {intermediate, c.hidden});
    add(prefix + "up_proj", {intermediate, c.hidden});
    add(prefix + "down_proj", {c.hidden, intermediate});
  };
  add("model.embed_tokens", {c.vocabulary, c.hidden});
  add("model.norm", {c.hidden});
  if (!c.tied_embeddings) add("lm_head", {c.vocabulary, c.hidden});
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = concat("model.layers.", i, ".");
    add(layer + "input_layernorm", {c.hidden});
    add(layer + "post_attention_layernorm", {c.hidden});
    add(layer + "self_attn.q_proj", {q, c.hidden});
    add(layer + "self_attn.k_proj", {kv, c.hidden});
    add(layer + "self_attn.v_proj", {kv, c.hidden});
    add(layer + "self_attn.o_proj", {c.hidden, q});
    if (c.qk_norm) {
      add(layer + "self_attn.q_norm", {c.head_dim});
      add(layer + "self_attn.k_norm", {c.head_dim});
    }
    if (c.attention_bias) {
      for (const auto& [name, n] : {std::pair{"q", q}, {"k", kv}, {"v", kv}, {"o", c.hidden}}) {
        shapes_[concat(layer, "self_attn.", name, "_proj.bias")] = {n};
      }
    }
    if (c.attention_sinks) shapes_[layer + "self_attn.sinks"] = {c.heads};
    if (gpt_oss) {
      add(layer + "mlp.router", {c.experts, c.hidden});
      shapes_[layer + "mlp.router.bias"] = {c.experts};
      const std::string experts = layer + "mlp.experts.";
      shapes_[experts + "gate_up_proj"] = {c.experts, 2 * c.expert_intermediate, c.hidden};
      shapes_[experts + "gate_up_proj_bias"] = {c.experts, 2 * c.expert_intermediate};
      shapes_[experts + "down_proj"] = {c.experts, c.hidden, c.expert_intermediate};
      shapes_[experts + "down_proj_bias"] = {c.experts, c.hidden};
      continue;
    }
    if (c.sparse_layer.empty() || !c.sparse_layer[static_cast<size_t>(i)]) {
      gated(layer + "mlp.", c.intermediate);
      continue;
    }
    add(layer + "mlp.gate", {c.experts, c.hidden});
    for (int64_t e = 0; e < c.experts; ++e) {
      gated(concat(layer, "mlp.experts.", e, "."), c.expert_intermediate);
    }
  }
}

std::vector<std::string> RandomCheckpoint::names() const {
  std::vector<std::string> result;
  for (const auto& [name, shape] : shapes_) result.push_back(name);
  return result;
}

const Tensor& RandomCheckpoint::drawn(int64_t columns) const {
  Tensor& made = drawn_[columns];
  if (made.defined()) return made;
  // 16 Mi elements, or the largest matrix of a smaller model: no cache of a GPU knows that they
  // come again.
  int64_t most = 1;
  for (const auto& [name, shape] : shapes_) most = std::max(most, element_count(shape));
  Tensor values =
      normal_data({std::min(most, int64_t{16} << 20)}, 1 + static_cast<uint64_t>(columns));
  const float deviation = 1 / std::sqrt(static_cast<float>(columns));
  for (int64_t i = 0; i < values.numel(); ++i) values.data<float>()[i] *= deviation;
  made = convert(values, format_).to(device_);
  return made;
}

Tensor RandomCheckpoint::tensor(const std::string& name) const {
  const Shape& shape = shapes_.at(name);
  if (shape.rank() == 1) {  // a norm: near 1
    Tensor values = normal_data(shape, 1);
    for (int64_t i = 0; i < values.numel(); ++i) {
      values.data<float>()[i] = 1 + 0.1f * values.data<float>()[i];
    }
    return convert(values, format_).to(device_);
  }
  const Tensor& source = drawn(shape[shape.rank() - 1]);
  Tensor result = Tensor::empty(shape, format_, device_);
  const int64_t bytes = bits(format_) / 8;
  for (int64_t done = 0; done < result.numel();) {
    const int64_t count = std::min(result.numel() - done, source.numel() - offset_);
    copy_memory(device_, result.data<char>() + done * bytes, device_,
                source.data<char>() + offset_ * bytes, static_cast<size_t>(count * bytes));
    done += count;
    offset_ = (offset_ + count) % source.numel();
  }
  if (shape.rank() == 2) return result;
  // Stacked experts come as gpt-oss stores them.
  Stream stream(device_);
  const Tensor codes = in_format(result, "mxfp4", stream);
  stream.synchronize();
  return codes;
}

}  // namespace halftone

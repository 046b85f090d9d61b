// A loaded model: the tensors of every layer, checked against the configuration.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/weight_reader.h"
#include "halftone/engine.h"
#include "halftone/moe.h"

namespace halftone {

// Weights of one transformer layer. Matrices are [N, K]: output by input features.
struct LayerWeights {
  Tensor input_norm, post_norm;           // [hidden]
  Tensor q;                               // [heads * head_dim, hidden]
  Tensor k, v;                            // [kv_heads * head_dim, hidden]
  Tensor o;                               // [hidden, heads * head_dim]
  Tensor q_bias, k_bias, v_bias, o_bias;  // f32, undefined without attention_bias
  Tensor sinks;                           // f32 [heads], undefined without attention_sinks
  Tensor q_norm, k_norm;                  // [head_dim], undefined without qk_norm

  float k_scale = 0, v_scale = 0;  // static scales of an FP8 cache; 0: none

  bool sparse = false;
  Tensor gate, up, down;  // dense: [intermediate, hidden] twice, [hidden, intermediate]
  Tensor router;          // sparse: [experts, hidden]
  Tensor router_bias;     // f32 [experts], undefined without router_bias
  std::vector<Tensor> expert_gate, expert_up, expert_down;  // a matrix an expert, or
  Tensor gate_up;                                           // stacked [experts, 2 n, hidden]
  MoeWeights experts;                                       // and bound

  // One that says how the layer's matrices are stored.
  const Tensor& typical() const {
    return !sparse ? gate : gate_up.defined() ? gate_up : expert_gate.front();
  }
};

// The experts of a layer whose matrices are stored as `matrix` is: what is the same in every pass.
MoeProblem moe_problem(const ModelConfig&, const Tensor& matrix);

class LoadedModel final : public Model {
 public:
  // Reads every tensor the configuration asks for; a tensor that is missing, left over or of
  // another shape is an Error that names it.
  LoadedModel(const Checkpoint&, std::unique_ptr<Tokenizer>, const LoadOptions&,
              Contents = Contents::weights);

  const ModelConfig& config() const override { return config_; }
  const Tokenizer& tokenizer() const override;
  const SamplingOptions& default_sampling() const override { return sampling_; }
  int64_t weight_bytes() const override { return weight_bytes_; }
  std::string describe() const override;

  const Device& device() const { return device_; }
  const Tensor& embedding() const { return embedding_; }    // [vocabulary, hidden]
  const Tensor& head() const { return head_; }              // [vocabulary, hidden], may be the same
  const Tensor& final_norm() const { return final_norm_; }  // [hidden]
  const std::vector<LayerWeights>& layers() const { return layers_; }

 private:
  ModelConfig config_;
  SamplingOptions sampling_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Device device_;
  Tensor embedding_, head_, final_norm_;
  std::vector<LayerWeights> layers_;
  int64_t weight_bytes_ = 0, parameters_ = 0;
};

// Of a checkpoint that is open.
MemoryNeed memory_needed(const Checkpoint&, const LoadOptions&, const SessionOptions&);

}  // namespace halftone

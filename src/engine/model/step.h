// One pass of some tokens through a model: every plan and every tensor argument made once, so that
// a decode step only calls kernels.
#pragma once
#include <deque>
#include <span>
#include <vector>

#include "engine/model/model.h"
#include "halftone/activation.h"
#include "halftone/attention.h"
#include "halftone/embedding.h"
#include "halftone/kv_cache.h"
#include "halftone/matmul.h"
#include "halftone/moe.h"
#include "halftone/norm.h"
#include "halftone/rope.h"
#include "ops/matmul/together.h"

namespace halftone {

// Activations of at most `rows` tokens, shared by all steps of a session. Row-major, on the device;
// the rows of each sequence together.
struct Activations {
  Activations(const ModelConfig&, int64_t sequences, int64_t rows, Format format, const Device&);
  int64_t bytes() const;
  // Writes ids, positions and keys_in_use of a pass of these tokens, as many of each sequence,
  // behind `held` ones; `upload` takes them to a device that has memory of its own, in one copy.
  void set_inputs(std::span<const int32_t> tokens, int64_t held, Stream&);
  void upload(Stream&) const;

  Tensor inputs, inputs_host;  // i32: the three below in one piece, and where the host writes it
  Tensor ids, positions;       // i32 [rows]
  Tensor residual;             // [rows, hidden]: the residual stream
  Tensor normed;               // [rows, hidden]
  Tensor q, k, v;              // [rows, heads * head_dim], [rows, kv_heads * head_dim] twice
  Tensor attended;             // [rows, heads * head_dim]
  Tensor gate, up;             // [rows, intermediate]; undefined without dense layers
  Tensor router;               // f32 [rows, experts]; undefined without sparse layers
  Tensor experts, expert_weights;  // i32 and f32 [rows, experts_per_token]: what each token chose
  Tensor keys_in_use;              // i32 [sequences]: cache length the attention sees
};

// How attention multiplies over a cache of this format.
AttentionMode cache_mode(Format cache);

// The products, norms, … of one pass share plans, and so workspaces, where their problems agree.
class Step {
 public:
  // `tokens` of each sequence of the cache.
  Step(const LoadedModel&, const Activations&, const KvCache&, int64_t tokens,
       bool batch_invariant);
  int64_t tokens() const { return tokens_; }
  int64_t workspace_bytes() const;
  // For caches with room for sequences of this length; a pass does so by itself.
  void plan_attention(int64_t length);

  // ids, positions -> the residual stream behind the last layer, and keys and values in the cache,
  // which has room for them. `length` is that of a sequence when the call these tokens belong to is
  // through: rotations that depend on it turn all tokens of a call alike.
  using OnAttention = decltype(SessionOptions::on_attention);
  void run_layers(KvCache&, int64_t length, Stream&, const OnAttention& = {});
  // Final norm and output head into f32 logits: of every row [rows, vocabulary], or of each
  // sequence's last [sequences, vocabulary].
  enum class Head : uint8_t { every_row, last_rows };
  void run_head(Head, const Tensor& logits, Stream&);

 private:
  struct Product {
    const MatmulPlan* plan = nullptr;
    MatmulTensors tensors;
    void operator()(Stream& stream) const { run(*plan, tensors, stream); }
    MatmulCall call() const { return {plan, &tensors}; }
  };
  struct Norm {
    const NormPlan* plan = nullptr;
    NormTensors tensors;
    void operator()(Stream& stream) const { run(*plan, tensors, stream); }
  };
  struct Layer {
    Norm input_norm, q_norm, k_norm,
        post_norm;  // without a plan: there is none, or within products
    Product q, k, v, o, gate, up, down, router;
    Tensor key_rows, value_rows;  // [tokens, kv_heads, head_dim]: what the cache takes
    HeadTransform heads;          // but for the rotation
    AttentionPlan* attention = nullptr;
    bool sparse = false;
    MoeTensors experts;
    const MoePlan* moe = nullptr;
  };

  Tensor rows(const Tensor& buffer) const { return buffer.slice(0, 0, sequences_ * tokens_); }
  Tensor last_rows(const Tensor& buffer) const;
  MatmulProblem problem_of(const MatmulTensors&) const;
  Product product(const MatmulTensors&, int branch = 0);
  Norm norm(const Tensor& x, const Tensor& weight, const Tensor& out);
  void plan_layer(const LayerWeights&);
  AttentionPlan* attention_with(int64_t window);
  void set_capacity(const KvCache&);
  void set_rope_length(int64_t length);
  HeadTransform turned(const Layer&) const;
  void project_heads(size_t layer, KvCache&, Stream&, const OnAttention&);
  void attend(int64_t layer, KvCache&, Stream&);

  const LoadedModel& model_;
  const Activations& buffers_;
  int64_t sequences_, tokens_;
  bool batch_invariant_;
  Device device_;
  // Deques, because calls hold pointers to the plans.
  // What runs at once has no workspace in common: products of a branch share plans.
  static constexpr int kBranches = 3;
  std::deque<MatmulPlan> products_[kBranches];
  std::deque<NormPlan> norms_;
  std::deque<MoePlan> mixtures_;
  EmbeddingPlan embedding_;
  EmbeddingTensors embedding_tensors_;
  RopePlan q_rope_, k_rope_;
  RopeTensors q_rope_tensors_, k_rope_tensors_;
  SwigluPlan swiglu_;
  SwigluTensors swiglu_tensors_;
  std::deque<AttentionPlan> attentions_;  // one for each window that layers have
  AttentionTensors attention_tensors_;
  RoutingOptions routing_;
  std::vector<Layer> layers_;
  bool one_pass_ = false;  // a kernel norms, rotates and appends heads
};

}  // namespace halftone

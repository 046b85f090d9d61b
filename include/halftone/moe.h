// Mixture of experts: routing, permutation and the grouped GEMMs of the experts. Numerics:
// docs/numerics.md, "MoE".
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "halftone/activation_function.h"
#include "halftone/error.h"
#include "halftone/operand_alignment.h"
#include "halftone/quantize.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// --- routing -------------------------------------------------------------------------------------

// From logits to scores, in f32.
enum class Scoring : uint8_t {
  softmax,        // over all experts; renormalised it is the softmax over the selected (gpt-oss,
                  // Mixtral)
  sigmoid,        // DeepSeek-V3, Llama 4
  sqrt_softplus,  // sqrt(log(1 + exp(logit))): DeepSeek-V4
};
const char* name(Scoring);

struct RoutingOptions {
  int top_k = 2;
  bool renormalize = true;  // weights of the selected experts sum to 1, before `scale`
  Scoring scoring = Scoring::softmax;
  float scale = 1;  // of the weights
  // Group-limited routing: of `groups` groups of consecutive experts only the `groups_kept` best
  // take part; a group's score is the sum of its `group_top` best experts (DeepSeek-V3: 8, 4, 2).
  int groups = 1, groups_kept = 1, group_top = 2;
};
struct Routing {
  Tensor experts;  // i32 [tokens, top_k], the best first; ties: the lower index
  Tensor weights;  // f32 [tokens, top_k]
};
struct RoutingTensors {
  Tensor logits;          // f32, f16, bf16 [tokens, experts], any row stride
  Tensor selection_bias;  // f32 [experts]: added to the scores when choosing, not to the weights
  // Hash routing (DeepSeek-V4): row token_ids[t] of the table is the choice, in its order; the
  // weights are those experts' scores.
  Tensor token_ids;     // i32 [tokens]
  Tensor expert_table;  // i32 or i64 [vocabulary, top_k]
};
// A NaN logit counts as -infinity. Softmax: experts at +infinity share the weight; a row without
// any finite or positive infinite logit is uniform. Weights that are all 0 are not renormalised.
Routing route(const Tensor& logits, const RoutingOptions&, Stream& = Stream::default_stream());
Routing route(const RoutingTensors&, const RoutingOptions&, Stream& = Stream::default_stream());
// The same into memory of the caller: i32 and f32 [tokens, top_k], row-major.
void route(const Tensor& logits, const RoutingOptions&, const Routing& out, Stream&);
void route(const RoutingTensors&, const RoutingOptions&, const Routing& out, Stream&);
// Choice and weights from FP64 scores, for tests.
Routing route_reference(const RoutingTensors&, const RoutingOptions&);

// Rows of the grouped GEMM: the slots t * top_k + s of `experts` sorted by expert, those of one
// expert in their own order (a stable counting sort).
struct Permutation {
  Tensor counts;   // i32 [experts]
  Tensor offsets;  // i32 [experts + 1]: first row of each expert, and the end
  Tensor order;    // i32 [tokens * top_k]: the slot of each row
  Tensor row_of;   // i32 [tokens, top_k]: its inverse
};
// expert_ids: i32 [tokens, top_k], any row stride, values in [0, experts).
Permutation permute(const Tensor& expert_ids, int64_t experts);

// --- grouped GEMMs -------------------------------------------------------------------------------

// How the operands of the four GEMMs of a layer lie: x by gate and up, and what is between by down,
// of the routed experts and of the shared one. As of matmul.
struct MoeAlignment {
  OperandAlignment up, down, shared_up, shared_down;
  bool operator==(const MoeAlignment&) const = default;
};

struct MoeProblem {
  int64_t tokens = 0, hidden = 0, intermediate = 0, experts = 0;
  int top_k = 0;
  Format x = Format::bf16;  // activations and output
  Format weight = Format::bf16;
  Scaling scaling;
  bool scaled = false;
  GatedActivation gated;
  bool scale_input = false;  // the weight multiplies the input of an expert (Llama 4)
  // Expert(s) that every token goes to, as one of this width; 0: none. Its format may differ.
  int64_t shared_intermediate = 0;
  Format shared_weight = Format::bf16;
  Scaling shared_scaling;
  bool shared_scaled = false;
  // W8A8, W4A4: x and the input of `down` are quantised to this format, row by row.
  std::optional<QuantizeOptions> quantize_x;
  // As of matmul: otherwise the kernels of GPUs depend on the average rows of an expert, tokens *
  // top_k / experts, and those of the shared expert on the tokens.
  bool batch_invariant = false;
  MoeAlignment alignment = {};
};

// The experts of a layer as checkpoints store them. Either one matrix an expert: gate, up
// [intermediate, hidden], down [hidden, intermediate]; or fused: gate_up [experts, 2 intermediate,
// hidden] (gate in the first half of the rows, or in the even rows when `interleaved`) and
// all_down [experts, hidden, intermediate]; `input_major`: the last two dimensions of the fused
// tensors and of their scales are exchanged, 8 bits or more an element.
struct ExpertTensors {
  std::vector<Tensor> gate, up, down;
  Tensor gate_up, all_down;
  bool interleaved = false, input_major = false;
  // f32, f16 or bf16. gate_up_bias in the order of the rows of gate_up; it serves separate
  // matrices too.
  Tensor gate_up_bias;  // [experts, 2 intermediate]
  Tensor down_bias;     // [experts, hidden]
  Tensor shared_gate, shared_up, shared_down;
};
// Experts checked against a problem, once, and seen as the kernels read them. Input-major tensors
// and tiled scales are copied here; everything else is borrowed from tensors this keeps alive.
struct MoeWeights {
  std::shared_ptr<const struct BoundExperts> experts;
};
MoeWeights bind_experts(const MoeProblem&, ExpertTensors);

// Experts either bound or, of separate matrices without biases, as vectors: of these only the ones
// in use are looked at. On a GPU they are bound.
struct MoeTensors {
  Tensor x;  // [tokens, hidden]
  Routing routing;
  const std::vector<Tensor>* gate = nullptr;
  const std::vector<Tensor>* up = nullptr;
  const std::vector<Tensor>* down = nullptr;
  Tensor out;  // [tokens, hidden]
  const MoeWeights* weights = nullptr;
  Tensor shared_scale = {};  // f32 [tokens] or undefined (1): weight of the shared expert
  Tensor residual = {};      // [tokens, hidden], as out, or undefined (0): added; may be out itself
};
MoeAlignment alignment_of(const MoeTensors&);

struct MoeKernels;
struct MoePlan {
  MoeProblem problem;
  Device device;
  std::shared_ptr<const MoeKernels> kernels;  // one for each GEMM
  int64_t workspace_bytes = 0;
  std::shared_ptr<void> workspace;  // used by one run at a time
};
std::string describe(const MoePlan&);

Support can_run(const MoeProblem&, const Device&);
MoePlan plan(const MoeProblem&, const Device&);
// out[t] = sum over the selected experts, in order of expert index, of weight * y, then the shared
// expert's y, then the residual; y = down h + bias, h = gated(gate x + bias, up x + bias); f32
// sums. With scale_input the weight multiplies gate x and up x instead. h is rounded to bf16 when x
// is bf16, else it stays f32. A token's result does not depend on the others nor on the number of
// threads. Weights of experts without tokens are not read. On a GPU, where the host does not see
// the routing, an expert that does not exist gives nothing and is an error of the next
// Stream::synchronize.
void run(const MoePlan&, const MoeTensors&, Stream&);
Tensor moe(const Tensor& x, const Routing&, const std::vector<Tensor>& gate,
           const std::vector<Tensor>& up, const std::vector<Tensor>& down,
           Stream& = Stream::default_stream());
// The problem's tokens, top_k and x are those of the arguments.
Tensor moe(const Tensor& x, const Routing&, const MoeProblem&, const MoeWeights&,
           Stream& = Stream::default_stream());

// FP64 from the operands as quantised, without the rounding before `down`, for tests: [tokens,
// hidden] f32.
Tensor moe_reference(const Tensor& x, const Routing&, const std::vector<Tensor>& gate,
                     const std::vector<Tensor>& up, const std::vector<Tensor>& down);
Tensor moe_reference(const Tensor& x, const Routing&, const MoeProblem&, const ExpertTensors&,
                     const Tensor& shared_scale = {});

}  // namespace halftone

// Mixture of experts: routing and the grouped expert products.
#pragma once
#include <memory>
#include <vector>

#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct RoutingOptions {
  int top_k = 2;
  bool renormalize = true;  // weights of the selected experts sum to 1
};
struct Routing {
  Tensor experts;  // i32 [tokens, top_k], largest weight first; ties: the lower index
  Tensor weights;  // f32 [tokens, top_k]
};
// Softmax over all experts in f32, then the top_k of its values. logits: f32, f16, bf16 [tokens,
// experts], any row stride. A NaN logit counts as -infinity; experts at +infinity share the weight;
// a row without any finite or positive infinite logit is uniform.
Routing route(const Tensor& logits, const RoutingOptions&, Stream& = Stream::default_stream());
// The same into memory of the caller: i32 and f32 [tokens, top_k], row-major.
void route(const Tensor& logits, const RoutingOptions&, const Routing& out, Stream&);

struct MoeProblem {
  int64_t tokens = 0, hidden = 0, intermediate = 0, experts = 0;
  int top_k = 0;
  Format x = Format::bf16;  // activations and output
  Format weight = Format::bf16;
  Scaling scaling;
  bool scaled = false;
};
// Expert e: gate[e], up[e] [intermediate, hidden], down[e] [hidden, intermediate], all of one
// format and scaling.
struct MoeTensors {
  Tensor x;  // [tokens, hidden]
  Routing routing;
  const std::vector<Tensor>* gate = nullptr;
  const std::vector<Tensor>* up = nullptr;
  const std::vector<Tensor>* down = nullptr;
  Tensor out;  // [tokens, hidden]
};
struct MoeKernel;
struct MoePlan {
  MoeProblem problem;
  Device device;
  const char* kernel = nullptr;
  const MoeKernel* row = nullptr;
  int64_t workspace_bytes = 0;
  std::shared_ptr<void> workspace;  // used by one run at a time
};
std::string describe(const MoePlan&);

Support can_run(const MoeProblem&, const Device&);
MoePlan plan(const MoeProblem&, const Device&);
// out[t] = sum over the selected experts, in order of expert index, of
// weight * down(silu(gate(x)) * up(x)); f32 sums. The product that enters `down` is rounded to bf16
// when x is bf16, else it stays f32. A token's result does not depend on the others nor on the
// number of threads.
void run(const MoePlan&, const MoeTensors&, Stream&);
Tensor moe(const Tensor& x, const Routing&, const std::vector<Tensor>& gate,
           const std::vector<Tensor>& up, const std::vector<Tensor>& down,
           Stream& = Stream::default_stream());

// FP64 from the operands as quantised, without the rounding before `down`, for tests: [tokens,
// hidden] f32.
Tensor moe_reference(const Tensor& x, const Routing&, const std::vector<Tensor>& gate,
                     const std::vector<Tensor>& up, const std::vector<Tensor>& down);

}  // namespace halftone

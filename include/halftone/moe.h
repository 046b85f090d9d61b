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
// Softmax over all experts in f32, then the top_k. logits: f32, f16, bf16 [tokens, experts].
Routing route(const Tensor& logits, const RoutingOptions&, Stream& = Stream::default_stream());

struct MoeProblem {
  int64_t tokens = 0, hidden = 0, intermediate = 0, experts = 0;
  int top_k = 0;
  Format x = Format::bf16;  // activations and output
  Format weight = Format::bf16;
  Scaling scaling;
  bool scaled = false;
};
// Expert e: gate[e], up[e] [intermediate, hidden], down[e] [hidden, intermediate].
struct MoeTensors {
  Tensor x;  // [tokens, hidden]
  Routing routing;
  const std::vector<Tensor>* gate = nullptr;
  const std::vector<Tensor>* up = nullptr;
  const std::vector<Tensor>* down = nullptr;
  Tensor out;  // [tokens, hidden]
};
struct MoePlan {
  MoeProblem problem;
  Device device;
  const char* kernel = nullptr;
  int64_t workspace_bytes = 0;
  std::shared_ptr<void> workspace;
};
std::string describe(const MoePlan&);

Support can_run(const MoeProblem&, const Device&);
MoePlan plan(const MoeProblem&, const Device&);
// out[t] = sum over the selected experts, in order of expert index, of
// weight * down(silu(gate(x)) * up(x)); f32 sums. A token's result does not depend on the others.
void run(const MoePlan&, const MoeTensors&, Stream&);
Tensor moe(const Tensor& x, const Routing&, const std::vector<Tensor>& gate,
           const std::vector<Tensor>& up, const std::vector<Tensor>& down,
           Stream& = Stream::default_stream());

// FP64, for tests: [tokens, hidden] f32.
Tensor moe_reference(const Tensor& x, const Routing&, const std::vector<Tensor>& gate,
                     const std::vector<Tensor>& up, const std::vector<Tensor>& down);

}  // namespace halftone

// Experts on a GPU, real or simulated.
#pragma once
#include "matmul/gpu_cases.h"
#include "moe/experts.h"

namespace halftone::test {

inline ExpertTensors on(const Device& device, const ExpertTensors& t) {
  ExpertTensors there = t;
  for (std::vector<Tensor>* all : {&there.gate, &there.up, &there.down}) {
    for (Tensor& m : *all) m = m.to(device);
  }
  for (Tensor* m : {&there.gate_up, &there.all_down, &there.gate_up_bias, &there.down_bias,
                    &there.shared_gate, &there.shared_up, &there.shared_down}) {
    if (m->defined()) *m = m->to(device);
  }
  return there;
}
inline Routing on(const Device& device, const Routing& r) {
  return {r.experts.to(device), r.weights.to(device)};
}

inline Tensor moe_on(Stream& stream, const Tensor& x, const Routing& r, const MoeProblem& p,
                     const ExpertTensors& t) {
  const Device& device = stream.device();
  const Tensor y = moe(x.to(device), on(device, r), p, bind_experts(p, on(device, t)), stream);
  stream.synchronize();
  return y.to(Device::cpu());
}

inline void expect_experts(Stream& stream, const WeightSpec& spec, Format format, int64_t tokens,
                           int64_t experts, int top_k) {
  SCOPED_TRACE(concat(label(spec), " x ", name(format), ", ", tokens, " tokens"));
  const int64_t hidden = 128, inter = k_step(spec) > 64 ? 128 : 64;
  const Experts w = random_experts(spec, experts, hidden, inter);
  const Tensor x = small_input(tokens, hidden, format);
  const Routing r = random_routing(tokens, experts, top_k, 3);
  const Expected e = expected_moe(x, r, w, inter, {}, gpu_roundings);
  const MoeProblem p = problem_of(spec, experts, hidden, inter);
  EXPECT_TRUE(within(to_floats(moe_on(stream, x, r, p, separate(w))), e.values, e.magnitudes));
}

}  // namespace halftone::test

// Experts on a GPU, real or simulated.
#pragma once
#include <functional>

#include "matmul/gpu_cases.h"
#include "moe/experts.h"
#include "support/sanitized.h"

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

// Biases of fused tensors, as checkpoints have them and as the reference takes them.
inline void add_biases(ExpertTensors* t, Extras* extras, int64_t experts, int64_t hidden,
                       int64_t inter) {
  t->gate_up_bias = random_tensor({experts, 2 * inter}, Format::bf16, 21);
  t->down_bias = random_tensor({experts, hidden}, Format::bf16, 22);
  const std::vector<float> both = to_floats(t->gate_up_bias);
  for (int64_t i = 0; i < experts * inter; ++i) {
    const int64_t row = i / inter * 2 * inter, j = i % inter;
    const int64_t gate = row + (t->interleaved ? 2 * j : j);
    extras->gate_bias.push_back(both[static_cast<size_t>(gate)]);
    extras->up_bias.push_back(both[static_cast<size_t>(gate + (t->interleaved ? 1 : inter))]);
  }
  extras->down_bias = to_floats(t->down_bias);
}

inline Tensor moe_on(Stream& stream, const Tensor& x, const Routing& r, const MoeProblem& p,
                     const ExpertTensors& t) {
  const Device& device = stream.device();
  MoeProblem known = p;
  known.tokens = r.experts.size(0), known.top_k = static_cast<int>(r.experts.size(1));
  known.x = x.format();
  static_cast<void>(planned(known, device));
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

// A layer as gpt-oss has it: biases, rows one after another and interleaved, a clamped gate.
// `check`: of the problem, for whoever wants a certain kernel.
inline void expect_gpt_oss(Stream& stream, int64_t experts, int64_t hidden, int64_t inter,
                           int64_t tokens, const std::function<void(const MoeProblem&)>& check) {
  const WeightSpec spec{Format::mxfp4, true, {Format::ue8m0, 1, 32}};
  for (const bool interleaved : {false, true}) {
    const Experts w = random_experts(spec, experts, hidden, inter);
    ExpertTensors t = fused(w, interleaved);
    MoeProblem p = problem_of(spec, experts, hidden, inter);
    p.gated = GatedActivation::gpt_oss();
    check(p);
    Extras extras;
    extras.gated = p.gated;
    add_biases(&t, &extras, experts, hidden, inter);
    const Tensor x = random_tensor({tokens, hidden}, Format::bf16, 4);
    const Routing r = random_routing(tokens, experts, 2, 3);
    const Expected e = expected_moe(x, r, w, inter, extras, one_chain_roundings);
    EXPECT_TRUE(within(to_floats(moe_on(stream, x, r, p, t)), e.values, e.magnitudes));
  }
}

// No race, no missing fence and no conflict of banks on sm_90a, whatever the order; the same bits.
inline void expect_strict(const WeightSpec& spec, int64_t experts, int64_t hidden, int64_t inter,
                          const Routing& r, uint64_t seeds, int64_t unused = 0) {
  using Options = SimulatorOptions;
  SCOPED_TRACE(label(spec));
  const Experts w = random_experts(spec, experts, hidden, inter, unused);
  const MoeProblem p = problem_of(spec, experts + unused, hidden, inter);
  const Tensor x = small_input(r.experts.size(0), hidden, Format::bf16);
  std::vector<float> first;
  for (uint64_t seed = 1; seed <= (kSanitized ? 1 : seeds); ++seed) {
    Stream stream(Device::simulator(Arch::sm_90a));
    configure(stream, {.severity = Options::Severity::strict,
                       .numerics = Options::Numerics::fast,
                       .schedule = Options::Schedule::adversarial,
                       .seed = seed,
                       .throws = false});
    const std::vector<float> y = to_floats(moe_on(stream, x, r, p, separate(w)));
    const SimulatorReport report = simulator_report(stream);
    ASSERT_TRUE(report.clean()) << to_string(report);
    EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal) << to_string(report);
    if (first.empty()) first = y;
    ASSERT_EQ(y, first) << "seed " << seed;
  }
}

}  // namespace halftone::test

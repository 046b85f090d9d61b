// Experts as checkpoints store them: fused, interleaved, input-major, biased, clamped, shared.
#include <algorithm>
#include <cmath>

#include "halftone/activation.h"
#include "halftone/matmul.h"
#include "moe/experts.h"

namespace halftone {
namespace {

using namespace test;

const WeightSpec kMxfp4{Format::mxfp4, true, {Format::ue8m0, 1, 32}};
const WeightSpec kNvfp4{Format::nvfp4, true, {Format::fp8_e4m3, 1, 16}, true};

// A layer as gpt-oss has it: biases, interleaved rows, clamped gate; the clamps are in use.
TEST(Experts, GptOss) {
  const int64_t experts = 4, hidden = 64, inter = 96;
  for (const WeightSpec& spec : {kMxfp4, WeightSpec{Format::bf16}}) {
    SCOPED_TRACE(label(spec));
    const Experts w = random_experts(spec, experts, hidden, inter);
    ExpertTensors t = fused(w, true);
    const Tensor biases = random_tensor({experts, 2 * inter}, Format::bf16, 21);
    const Tensor down_bias = random_tensor({experts, hidden}, Format::bf16, 22);
    t.gate_up_bias = biases, t.down_bias = down_bias;
    MoeProblem p = problem_of(spec, experts, hidden, inter);
    p.gated = GatedActivation::gpt_oss();
    Extras extras;
    extras.gated = p.gated;
    const std::vector<float> both = to_floats(biases);
    for (size_t i = 0; i < both.size(); i += 2) {
      extras.gate_bias.push_back(both[i]), extras.up_bias.push_back(both[i + 1]);
    }
    extras.down_bias = to_floats(down_bias);
    const MoeWeights bound = bind_experts(p, t);
    at_every_level([&] {
      for (Format format : {Format::f32, Format::bf16}) {
        const Tensor x = random_tensor({5, hidden}, format, 4);
        const Routing r = random_routing(5, experts, 2, 3);
        const Expected e = expected_moe(x, r, w, inter, extras);
        EXPECT_TRUE(within(to_floats(moe(x, r, p, bound)), e.values, e.magnitudes));
        const std::vector<float> reference = to_floats(moe_reference(x, r, p, t));
        for (size_t i = 0; i < reference.size(); ++i) {
          EXPECT_NEAR(reference[i], e.values[i], 1e-6 * std::abs(e.values[i]) + 1e-12);
        }
        // Biases one row further on, and no clamp, are noticed.
        Extras wrong = extras;
        std::rotate(wrong.gate_bias.begin(), wrong.gate_bias.begin() + 1, wrong.gate_bias.end());
        const Expected shifted = expected_moe(x, r, w, inter, wrong);
        const Tensor y = moe(x, r, p, bound);
        EXPECT_FALSE(within(to_floats(y), shifted.values, shifted.magnitudes));
        wrong = extras;
        wrong.gated.limit = INFINITY;
        const Expected free = expected_moe(x, r, w, inter, wrong);
        EXPECT_FALSE(within(to_floats(y), free.values, free.magnitudes));
      }
    });
  }
}

// Fused, interleaved and input-major tensors hold the same experts: the same bits.
TEST(Experts, FormsAgree) {
  const int64_t experts = 3, hidden = 64, inter = 64;
  const WeightSpec per_row{Format::fp8_e4m3, true, {Format::f32, 1, 0}};
  const WeightSpec int8{Format::int8, true, {Format::f16, 1, 32}};
  for (const WeightSpec& spec : {WeightSpec{Format::bf16}, per_row, int8, kMxfp4, kNvfp4}) {
    SCOPED_TRACE(label(spec));
    const Experts w = random_experts(spec, experts, hidden, inter);
    const MoeProblem p = problem_of(spec, experts, hidden, inter);
    const Tensor x = small_input(6, hidden, Format::bf16);
    const Routing r = random_routing(6, experts, 2, 3);
    const std::vector<float> want = to_floats(moe(x, r, w.gate, w.up, w.down));
    EXPECT_EQ(to_floats(moe(x, r, p, bind_experts(p, separate(w)))), want);
    EXPECT_EQ(to_floats(moe(x, r, p, bind_experts(p, fused(w, false)))), want);
    EXPECT_EQ(to_floats(moe(x, r, p, bind_experts(p, fused(w, true)))), want);
    ExpertTensors t = fused(w, false);
    if (bits(spec.format) < 8) {
      t.input_major = true;
      expect_error([&] { bind_experts(p, t); }, {"gate_up is ", "8 bits or more"});
    } else {
      t.gate_up = input_major(t.gate_up), t.all_down = input_major(t.all_down);
      t.input_major = true;
      EXPECT_EQ(to_floats(moe(x, r, p, bind_experts(p, t))), want);
    }
  }
}

// Scales in the tiled layouts are read as they are.
TEST(Experts, TiledScales) {
  const int64_t experts = 2, hidden = 64, inter = 96;
  const Experts w = random_experts(kNvfp4, experts, hidden, inter);
  const Tensor x = small_input(3, hidden, Format::bf16);
  const Routing r = random_routing(3, experts, 2, 3);
  const std::vector<float> want = to_floats(moe(x, r, w.gate, w.up, w.down));
  for (ScaleLayout layout : {ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4}) {
    MoeProblem p = problem_of(kNvfp4, experts, hidden, inter);
    p.scaling.layout = layout;
    ExpertTensors t = separate(w);
    for (std::vector<Tensor>* all : {&t.gate, &t.up, &t.down}) {
      for (Tensor& m : *all) {
        const Tensor tiled = convert_scale_layout(m.scales(), m.size(0), m.size(1) / 16,
                                                  ScaleLayout::linear, layout);
        m = m.quantized(p.scaling, tiled, m.tensor_scale());
      }
    }
    EXPECT_EQ(to_floats(moe(x, r, p, bind_experts(p, t))), want);
  }
}

// DeepSeek-V4's clamp with a shared expert of another format and width; Llama 4's score on the
// input with a shared expert that it leaves alone.
TEST(Experts, SharedExpertAndScaledInput) {
  const int64_t experts = 4, hidden = 64, inter = 64, shared_inter = 160;
  const WeightSpec fp8{Format::fp8_e4m3, true, {Format::f32, 128, 128}};
  const Experts w = random_experts(kMxfp4, experts, hidden, inter);
  for (const WeightSpec& shared_spec : {fp8, WeightSpec{Format::bf16}, WeightSpec{Format::f32}}) {
    const Experts shared = random_experts(shared_spec, 1, hidden, shared_inter);
    for (bool on_input : {false, true}) {
      MoeProblem p = problem_of(kMxfp4, experts, hidden, inter);
      p.scale_input = on_input;
      if (!on_input) p.gated = GatedActivation::clamped_swiglu();
      p.shared_intermediate = shared_inter;
      p.shared_weight = shared_spec.format, p.shared_scaled = shared_spec.scaled;
      p.shared_scaling = shared_spec.scaling;
      ExpertTensors t = separate(w);
      t.shared_gate = shared.gate[0], t.shared_up = shared.up[0], t.shared_down = shared.down[0];
      const Extras extras{p.gated, {}, {}, {}, on_input, &shared, shared_inter, 1};
      const MoeWeights bound = bind_experts(p, t);
      at_every_level([&] {
        const int64_t tokens = 7;
        const Tensor x = random_tensor({tokens, hidden}, Format::bf16, 4);
        const Routing r = random_routing(tokens, experts, on_input ? 1 : 3, 3);
        const Expected e = expected_moe(x, r, w, inter, extras);
        const Tensor y = moe(x, r, p, bound);
        EXPECT_TRUE(within(to_floats(y), e.values, e.magnitudes));
        const Routing one{r.experts.slice(0, 4, 5), r.weights.slice(0, 4, 5)};
        EXPECT_EQ(to_floats(moe(x.slice(0, 4, 5), one, p, bound)), to_floats(y.slice(0, 4, 5)));
      });
    }
  }
}

// W8A8 and W4A4 experts are the two quantised GEMMs, bit for bit.
TEST(Experts, QuantisedActivations) {
  const int64_t experts = 2, hidden = 256, inter = 128, tokens = 6;
  const WeightSpec fp8{Format::fp8_e4m3, true, {Format::f32, 128, 128}};
  const WeightSpec int8{Format::int8, true, {Format::f32, 1, 0}};
  const WeightSpec mxfp8{Format::mxfp8, true, {Format::ue8m0, 1, 32}};
  at_every_level([&] {
    for (const auto& [spec, rounding] : {std::pair{fp8, "fp8_1x128"},
                                         {fp8, "fp8_row"},
                                         {int8, "int8"},
                                         {kNvfp4, "nvfp4"},
                                         {mxfp8, "mxfp8"},
                                         {kMxfp4, "mxfp8"}}) {
      SCOPED_TRACE(concat(rounding, " x ", label(spec)));
      const Experts w = random_experts(spec, experts, hidden, inter);
      MoeProblem p = problem_of(spec, experts, hidden, inter);
      p.quantize_x = parse_quantization(rounding);
      const Tensor x = small_input(tokens, hidden, Format::bf16);
      Routing r = random_routing(tokens, experts, 1, 3);  // one expert, weight 1
      const Tensor y = moe(x, r, p, bind_experts(p, separate(w)));
      for (int64_t t = 0; t < tokens; ++t) {
        const auto e = static_cast<size_t>(r.experts.data<int32_t>()[t]);
        MatmulOptions o;
        o.quantize_x = p.quantize_x;
        o.out = Format::f32;
        const Tensor row = x.slice(0, t, t + 1);
        const Tensor gate = matmul(row, w.gate[e], o), up = matmul(row, w.up[e], o);
        const Tensor h = convert(gated(gate, up, p.gated), Format::bf16);
        const Tensor want = convert(matmul(h, w.down[e], o), Format::bf16);
        EXPECT_EQ(to_floats(y.slice(0, t, t + 1)), to_floats(want));
      }
    }
  });
}

TEST(Experts, Errors) {
  const int64_t experts = 2, hidden = 32, inter = 32;
  const Experts w = random_experts(kMxfp4, experts, hidden, inter);
  MoeProblem p = problem_of(kMxfp4, experts, hidden, inter);
  ExpertTensors t = separate(w);
  t.up[1] = w.up[1].slice(0, 0, 16);
  expect_error([&] { bind_experts(p, t); }, {"up[1] is mxfp4 [16, 32]", "[32, 32]"});
  t = separate(w);
  t.gate_up = fused(w, false).gate_up;
  expect_error([&] { bind_experts(p, t); }, {"both separate and fused"});
  t = fused(w, false);
  t.gate_up_bias = Tensor::zeros({experts, inter}, Format::f32);
  expect_error([&] { bind_experts(p, t); }, {"gate_up_bias is [2, 32]", "[2, 64]"});
  t = separate(w);
  t.interleaved = true;
  expect_error([&] { bind_experts(p, t); }, {"interleaved"});
  p.shared_intermediate = 8;
  p.shared_weight = Format::bf16;
  expect_error([&] { bind_experts(p, separate(w)); }, {"shared_gate is undefined"});
  p.shared_intermediate = 0;
  p.gated.limit = 0;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("top_k is 0"), std::string::npos);
  p.top_k = 1;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("limit is 0"), std::string::npos);
  const MoeWeights bound = bind_experts(problem_of(kMxfp4, experts, hidden, inter), separate(w));
  p = problem_of(kMxfp4, experts, hidden, 64);
  const Tensor x = random_tensor({2, hidden}, Format::bf16, 3);
  expect_error([&] { moe(x, random_routing(2, 2, 1, 1), p, bound); }, {"weights are 2 experts"});
}

}  // namespace
}  // namespace halftone

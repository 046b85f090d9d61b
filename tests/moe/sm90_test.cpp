// Experts on Hopper's wgmma, simulated.
#include "moe/gpu_cases.h"

#include <tuple>

namespace halftone::test {
namespace {

using F = Format;
using Options = SimulatorOptions;

const WeightSpec kBf16{F::bf16}, kBlocks{F::fp8_e4m3, true, {F::f32, 128, 128}};
const WeightSpec kMxfp4{F::mxfp4, true, {F::ue8m0, 1, 32}};
const WeightSpec kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};
// A weight for every type and scale mode.
const std::vector<WeightSpec> kSpecs = {
    kBf16,
    {F::fp8_e4m3, true, {F::f32, 1, 0}},
    kBlocks,
    {F::mxfp8, true, {F::ue8m0, 1, 32}},
    {F::int8, true, {F::f32, 1, 0}},
    {F::int8, true, {F::f16, 1, 64}},
    kMxfp4,
    kNvfp4,
    {F::int4, true, {F::bf16, 1, 128, ScaleLayout::linear, true}},
    {F::int4, true, {F::f16, 1, 64, ScaleLayout::linear, true}},
    {F::int8, true, {F::f16, 1, 32}},
    {F::int4, true, {F::f32, 1, 32, ScaleLayout::linear, true}}};

void expect_tiles(const MoeProblem& problem, int64_t tokens, int top_k, const Device& device,
                  const char* tiles) {
  MoeProblem p = problem;
  p.tokens = tokens, p.top_k = top_k;
  const std::string kernel = describe(plan(p, device));
  const bool in_fp8 = std::string_view(tiles).ends_with("in FP8");
  const std::string want =
      concat(in_fp8 ? "gemm_sm90_fp8" : "gemm_sm90_mixed", ", tiles of ", tiles);
  ASSERT_NE(kernel.find(concat("up by ", want)), std::string::npos) << kernel;
  ASSERT_NE(kernel.find(concat("down by ", want)), std::string::npos) << kernel;
}

// Tiled scales, which the small-M kernel does not take.
Experts with_tiled_scales(Experts w, int64_t hidden, int64_t inter, Scaling* scaling) {
  const Scaling linear = *scaling;
  scaling->layout = ScaleLayout::tiled_128x4;
  const auto turn = [&](Tensor* t, int64_t n, int64_t k) {
    *t = t->quantized(
        *scaling,
        convert_scale_layout(t->scales(), n, k / linear.block_cols, linear.layout, scaling->layout),
        t->tensor_scale());
  };
  for (size_t e = 0; e < w.gate.size(); ++e) {
    turn(&w.gate[e], inter, hidden), turn(&w.up[e], inter, hidden), turn(&w.down[e], hidden, inter);
  }
  return w;
}

// Few rows an expert and many, partial chunks, experts without rows. Few rows of quantised weights
// go to the small-M kernel, except with tiled scales and with K that is no multiple of 64.
TEST(MoeSm90, EveryFormat) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& spec : some(kSpecs, 3)) {
    SCOPED_TRACE(label(spec));
    const bool in_blocks = is_block(spec.format);
    for (const auto& [tokens, experts, tiles] :
         {std::tuple<int64_t, int64_t, const char*>{11, 6, "128 x 32"}, {52, 3, "128 x 64"}}) {
      const bool odd = tokens == 11 && bits(spec.format) == 8 && !in_blocks;
      const int64_t hidden = odd ? 272 : 256, inter = odd ? 144 : 128;
      Experts w = random_experts(spec, experts, hidden, inter);
      MoeProblem p = problem_of(spec, experts, hidden, inter);
      if (tokens == 11 && in_blocks) w = with_tiled_scales(w, hidden, inter, &p.scaling);
      expect_tiles(p, tokens, 2, stream.device(), tiles);
      const Tensor x = small_input(tokens, hidden, F::bf16);
      const Routing r = random_routing(tokens, experts, 2, 3);
      const Expected e = expected_moe(x, r, w, inter, {}, one_chain_roundings);
      EXPECT_TRUE(within(to_floats(moe_on(stream, x, r, p, separate(w))), e.values, e.magnitudes));
    }
  }
}

TEST(MoeSm90, ManyRows) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t hidden = 128, inter = 192, experts = 2;
  for (const auto& [spec, tokens, tiles] :
       {std::tuple<WeightSpec, int64_t, const char*>{kBf16, 100, "128 x 128"},
        {kBf16, 300, "128 x 256"},
        {kBlocks, 150, "128 x 128"},
        {kBlocks, 300, "128 x 256"},
        {WeightSpec{F::int4, true, {F::f32, 1, 0, ScaleLayout::linear, true}}, 300, "128 x 128"},
        {kSpecs.back(), 300, "128 x 256"},
        {WeightSpec{F::int4, true, {F::f16, 1, 64}}, 300, "128 x 256"}}) {
    const Experts w = random_experts(spec, experts, hidden, inter);
    const MoeProblem p = problem_of(spec, experts, hidden, inter);
    expect_tiles(p, tokens, 1, stream.device(), tiles);
    const Tensor x = small_input(tokens, hidden, F::bf16);
    const Routing r = random_routing(tokens, experts, 1, 3);
    const Expected e = expected_moe(x, r, w, inter, {}, one_chain_roundings);
    EXPECT_TRUE(within(to_floats(moe_on(stream, x, r, p, separate(w))), e.values, e.magnitudes));
  }
}

// All tokens to one expert: more parts than its share, and what is in them is the same whatever the
// others are. Slots without an expert leave rows that nobody multiplies.
TEST(MoeSm90, OneExpertOfMany) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t experts = 9, hidden = 128, inter = 64, tokens = 45;
  const Experts w = random_experts(kBf16, experts, hidden, inter);
  const MoeProblem p = problem_of(kBf16, experts, hidden, inter);
  expect_tiles(p, tokens, 1, stream.device(), "128 x 32");
  const Tensor x = small_input(tokens, hidden, F::bf16);
  const Routing r = random_routing(tokens, experts, 1, 3);
  for (int64_t t = 0; t < tokens; ++t) r.experts.data<int32_t>()[t] = 7;
  const Expected e = expected_moe(x, r, w, inter, {}, one_chain_roundings);
  const std::vector<float> all = to_floats(moe_on(stream, x, r, p, separate(w)));
  EXPECT_TRUE(within(all, e.values, e.magnitudes));
  // A wrong expert is seen.
  r.experts.data<int32_t>()[44] = 3;
  const Expected other = expected_moe(x, r, w, inter, {}, one_chain_roundings);
  EXPECT_FALSE(within(all, other.values, other.magnitudes));
  r.experts.data<int32_t>()[20] = -1;
  expect_error([&] { moe_on(stream, x, r, p, separate(w)); }, {"has -1 in slot 20"});
}

TEST(MoeSm90, GptOss) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const auto tiles = [&](const MoeProblem& p) {
    expect_tiles(p, 70, 2, stream.device(), "128 x 64");
  };
  expect_gpt_oss(stream, 4, 128, 384, 70, tiles);
  if (!kSanitized) expect_gpt_oss(stream, 4, 320, 448, 70, tiles);
}

TEST(MoeSm90, SharedExpertAndScaledInput) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t experts = 4, hidden = 128, inter = 64, shared_inter = 160, tokens = 21;
  const Experts w = random_experts(kBf16, experts, hidden, inter);
  const Experts shared = random_experts(kBlocks, 1, hidden, shared_inter);
  MoeProblem p = problem_of(kBf16, experts, hidden, inter);
  p.scale_input = true;
  p.shared_intermediate = shared_inter;
  p.shared_weight = kBlocks.format, p.shared_scaled = true, p.shared_scaling = kBlocks.scaling;
  ExpertTensors t = separate(w);
  t.shared_gate = shared.gate[0], t.shared_up = shared.up[0], t.shared_down = shared.down[0];
  const Extras extras{p.gated, {}, {}, {}, true, &shared, shared_inter, 1};
  const Tensor x = small_input(tokens, hidden, F::bf16);
  const Routing r = random_routing(tokens, experts, 2, 3);
  const Expected e = expected_moe(x, r, w, inter, extras, one_chain_roundings);
  EXPECT_TRUE(within(to_floats(moe_on(stream, x, r, p, t)), e.values, e.magnitudes));
}

// Whether results are as on the CPU but for the order of sums. A quantised value of h may differ
// where the sums before it do; FP8 products lose bits in the tensor cores.
void expect_as_on_cpu(Stream& stream, const WeightSpec& spec, const char* how, int64_t tokens,
                      int64_t experts, int top_k, int64_t inter, const char* tiles) {
  SCOPED_TRACE(concat(label(spec), " x ", how));
  const int64_t hidden = 256;
  const Experts w = random_experts(spec, experts, hidden, inter);
  MoeProblem p = problem_of(spec, experts, hidden, inter);
  p.quantize_x = parse_quantization(how);
  expect_tiles(p, tokens, top_k, stream.device(), tiles);
  const Tensor x = small_input(tokens, hidden, F::bf16);
  const Routing r = random_routing(tokens, experts, top_k, 3);
  const std::vector<float> got = to_floats(moe_on(stream, x, r, p, separate(w)));
  const std::vector<float> want = to_floats(moe(x, r, p, bind_experts(p, separate(w))));
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]), norm += want[i] * want[i];
  }
  EXPECT_LT(error, 1e-4 * norm);
}

// x rounded on the way.
TEST(MoeSm90, QuantisedActivations) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const auto& [spec, how] : {std::pair{kNvfp4, "nvfp4"},
                                  {kBlocks, "fp8_1x128"},
                                  {kSpecs[1], "fp8_row"},
                                  {kSpecs[5], "int8"},
                                  {kMxfp4, "mxfp8"}}) {
    expect_as_on_cpu(stream, spec, how, 20, 3, 2, 128, "128 x 64");
  }
}

// FP8 by FP8 with x as the M operand: parts of more rows than a warpgroup has and of fewer, a
// gate of an odd number of tiles.
TEST(MoeSm90, Fp8ManyRows) {
  Stream stream(Device::simulator(Arch::sm_90a));
  configure(stream, {.severity = Options::Severity::strict,
                     .schedule = Options::Schedule::adversarial,
                     .throws = false});
  expect_as_on_cpu(stream, kBlocks, "fp8_1x128", 200, 2, 1, 192, "128 x 256 in FP8");
  expect_as_on_cpu(stream, kSpecs[1], "fp8_row", 75, 1, 1, 192, "128 x 256 in FP8");
  const SimulatorReport report = simulator_report(stream);
  EXPECT_TRUE(report.clean()) << to_string(report);
  EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal) << to_string(report);
}

TEST(MoeSm90, StrictUnderAdversarialSchedules) {
  for (const WeightSpec& spec : some(kSpecs)) {
    for (const int64_t tokens : {9, 52}) {
      MoeProblem p = problem_of(spec, 3, 256, 128);
      p.tokens = tokens, p.top_k = 2;
      const std::string kernel = describe(plan(p, Device::simulator(Arch::sm_90a)));
      if (tokens == 9 && kernel.find("small_m") != std::string::npos) continue;  // its own test
      expect_strict(spec, 3, 256, 128, random_routing(tokens, 3, 2, 3), 2);
    }
  }
}

}  // namespace
}  // namespace halftone::test

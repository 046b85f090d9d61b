// Routers and experts of GPUs on simulated ones.
#include "moe/gpu_cases.h"

namespace halftone::test {
namespace {

using F = Format;
using Options = SimulatorOptions;

const WeightSpec kBf16{F::bf16}, kFp8{F::fp8_e4m3, true, {F::f32, 128, 128}};
const WeightSpec kMxfp4{F::mxfp4, true, {F::ue8m0, 1, 32}};
const WeightSpec kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};

TEST(MoeGpu, RoutersChooseAsTheReference) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t tokens = 11, experts = 48;
  for (const Scoring scoring : {Scoring::softmax, Scoring::sigmoid, Scoring::sqrt_softplus}) {
    for (const int groups : {1, 8}) {
      for (const F format : {F::f32, F::bf16}) {
        SCOPED_TRACE(concat(name(scoring), ", ", groups, " groups, ", name(format)));
        RoutingOptions o;
        o.top_k = 6, o.scoring = scoring, o.scale = 2.5f;
        o.groups = groups, o.groups_kept = groups / 2 + (groups == 1 ? 1 : 0);
        o.renormalize = groups == 1;
        RoutingTensors t{random_tensor({tokens, experts}, format, 5), {}, {}, {}};
        if (scoring != Scoring::softmax) t.selection_bias = random_tensor({experts}, F::f32, 6);
        const Routing want = route_reference(t, o);
        RoutingTensors there = t;
        there.logits = t.logits.to(stream.device());
        if (t.selection_bias.defined()) {
          there.selection_bias = t.selection_bias.to(stream.device());
        }
        const Routing got = on(Device::cpu(), route(there, o, stream));
        for (int64_t i = 0; i < tokens * o.top_k; ++i) {
          EXPECT_EQ(got.experts.data<int32_t>()[i], want.experts.data<int32_t>()[i]);
          const float weight = want.weights.data<float>()[i];
          EXPECT_NEAR(got.weights.data<float>()[i], weight, 1e-6f * weight);
        }
      }
    }
  }
}

// DeepSeek-V4's tables; what is in none is an error of the next wait and goes to no expert.
TEST(MoeGpu, HashRouting) {
  Stream stream(Device::simulator(Arch::sm_90a));
  configure(stream,
            {.severity = Options::Severity::strict, .schedule = Options::Schedule::adversarial});
  const Device& device = stream.device();
  const int64_t tokens = 9, experts = 8, words = 3;
  const std::vector<int32_t> ids = {2, 0, 1, 1, 2, 0, 0, 2, 1};
  const std::vector<int32_t> entries = {7, 1, 0, 0, 2, 6, 5, 3, 4};
  const std::vector<int64_t> wide(entries.begin(), entries.end());
  RoutingTensors t{random_tensor({tokens, experts}, F::bf16, 7), {}, {}, {}};
  t.token_ids = Tensor::from<int32_t>(ids, {tokens}, F::i32);
  RoutingOptions o;
  o.top_k = 3, o.scoring = Scoring::sqrt_softplus, o.scale = 1.5f;
  for (const F format : {F::i32, F::i64}) {
    t.expert_table = format == F::i32 ? Tensor::from<int32_t>(entries, {words, 3}, F::i32)
                                      : Tensor::copy_of(wide.data(), 72, {words, 3}, F::i64);
    const Routing want = route_reference(t, o);
    const RoutingTensors there{
        t.logits.to(device), {}, t.token_ids.to(device), t.expert_table.to(device)};
    const Routing got = on(Device::cpu(), route(there, o, stream));
    for (int64_t i = 0; i < tokens * o.top_k; ++i) {
      EXPECT_EQ(got.experts.data<int32_t>()[i], want.experts.data<int32_t>()[i]);
      EXPECT_NEAR(got.weights.data<float>()[i], want.weights.data<float>()[i], 2e-6f);
    }
  }
  RoutingTensors wrong{t.logits.to(device), {}, t.token_ids.to(device), t.expert_table.to(device)};
  wrong.expert_table.data<int64_t>()[4] = 8;
  Routing r = route(wrong, o, stream);
  expect_error([&] { stream.synchronize(); }, {"row 1 of expert_table has 8", "8 experts"});
  EXPECT_EQ(on(Device::cpu(), r).experts.data<int32_t>()[2 * 3 + 1], -1);
  EXPECT_EQ(on(Device::cpu(), r).weights.data<float>()[2 * 3 + 1], 0);
  wrong.expert_table = t.expert_table.to(device);
  wrong.token_ids.data<int32_t>()[3] = -2;
  r = route(wrong, o, stream);
  expect_error([&] { stream.synchronize(); }, {"token_ids[3] is -2", "3 rows"});
}

// More experts than the scores of four warps leave room for.
// Of few tokens a block takes each, of many a warp: the same choice and the same bits, without
// races.
TEST(MoeGpu, RoutersOfFewAndManyTokens) {
  const Device device = Device::simulator(Arch::sm_90a);
  const int64_t many = 140, few = 3;
  for (const Scoring scoring : {Scoring::softmax, Scoring::sigmoid}) {
    for (const int64_t experts : {6, 130, 520}) {
      SCOPED_TRACE(concat(name(scoring), ", ", experts, " experts"));
      RoutingOptions o;
      o.top_k = 5, o.scoring = scoring;
      if (experts == 520) o.groups = 8, o.groups_kept = 3;
      std::vector<float> logits = random_values(many * experts, 5);
      for (float& x : logits) x = std::round(4 * x) / 4;  // with ties
      const Tensor all = Tensor::from<float>(logits, {many, experts}, F::f32).to(device);
      const auto routed = [&](const Tensor& rows) {
        Stream stream(device);
        configure(stream, {.severity = Options::Severity::strict,
                           .schedule = Options::Schedule::adversarial,
                           .seed = 3,
                           .throws = false});
        RoutingTensors t{rows, {}, {}, {}};
        if (scoring == Scoring::sigmoid) {
          t.selection_bias = random_tensor({experts}, F::f32, 6).to(device);
        }
        const Routing r = on(Device::cpu(), route(t, o, stream));
        const SimulatorReport report = simulator_report(stream);
        EXPECT_TRUE(report.clean()) << to_string(report);
        return r;
      };
      const Routing a = routed(all), b = routed(all.slice(0, 0, few));
      for (int64_t i = 0; i < few * o.top_k; ++i) {
        EXPECT_EQ(b.experts.data<int32_t>()[i], a.experts.data<int32_t>()[i]) << i;
        EXPECT_EQ(b.weights.data<float>()[i], a.weights.data<float>()[i]) << i;
      }
    }
  }
}

TEST(MoeGpu, RoutersOfManyExperts) {
  Stream stream(Device::simulator(Arch::sm_80));
  RoutingTensors t{random_tensor({3, 2500}, F::f32, 9), {}, {}, {}};
  RoutingOptions o;
  o.top_k = 4, o.groups = 50, o.groups_kept = 20;
  const Routing want = route_reference(t, o);
  t.logits = t.logits.to(stream.device());
  const Routing got = on(Device::cpu(), route(t, o, stream));
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(got.experts.data<int32_t>()[i], want.experts.data<int32_t>()[i]);
  }
  t.logits = random_tensor({1, 4001}, F::f32, 9).to(stream.device());
  expect_error([&] { route(t, {}, stream); }, {"4001 experts", "up to 4000"});
}

// NaN, infinities and ties.
TEST(MoeGpu, RoutersOfStrangeLogits) {
  Stream stream(Device::simulator(Arch::sm_80));
  const float inf = INFINITY, nan = NAN;
  const Tensor logits =
      Tensor::from({1, nan, 3, 3, inf, 0, inf, -1, -inf, -inf, nan, -inf, 2, 2, 2, 2}, {4, 4});
  RoutingOptions o;
  const Routing want = route(logits, o);
  const Routing got = on(Device::cpu(), route(logits.to(stream.device()), o, stream));
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(got.experts.data<int32_t>()[i], want.experts.data<int32_t>()[i]) << i;
    EXPECT_NEAR(got.weights.data<float>()[i], want.weights.data<float>()[i], 1e-6);
  }
}

TEST(MoeGpu, EveryFormat) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& spec : weight_specs()) expect_experts(stream, spec, F::bf16, 4, 3, 2);
  for (const WeightSpec& spec : {kBf16, kFp8, kMxfp4, kNvfp4, WeightSpec{F::f16}}) {
    for (const F format : {F::f32, F::f16}) expect_experts(stream, spec, format, 5, 6, 3);
  }
}

TEST(MoeGpu, ManyTokens) {
  Stream stream(Device::simulator(Arch::sm_80));
  expect_experts(stream, kFp8, F::bf16, 70, 3, 2);
  expect_experts(stream, kNvfp4, F::f32, 45, 2, 1);
}

// A layer as gpt-oss has it: biases, interleaved rows, clamped gate; the clamps are in use.
TEST(MoeGpu, GptOss) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t experts = 4, hidden = 64, inter = 96;
  for (const bool interleaved : {false, true}) {
    const Experts w = random_experts(kMxfp4, experts, hidden, inter);
    ExpertTensors t = fused(w, interleaved);
    MoeProblem p = problem_of(kMxfp4, experts, hidden, inter);
    p.gated = GatedActivation::gpt_oss();
    Extras extras;
    extras.gated = p.gated;
    add_biases(&t, &extras, experts, hidden, inter);
    const Tensor x = random_tensor({5, hidden}, F::bf16, 4);
    const Routing r = random_routing(5, experts, 2, 3);
    const Expected e = expected_moe(x, r, w, inter, extras, gpu_roundings);
    EXPECT_TRUE(within(to_floats(moe_on(stream, x, r, p, t)), e.values, e.magnitudes));
  }
}

TEST(MoeGpu, SharedExpertAndScaledInput) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t experts = 4, hidden = 64, inter = 64, shared_inter = 160;
  const Experts w = random_experts(kMxfp4, experts, hidden, inter);
  const Experts shared = random_experts(kFp8, 1, hidden, shared_inter);
  for (const bool on_input : {false, true}) {
    MoeProblem p = problem_of(kMxfp4, experts, hidden, inter);
    p.scale_input = on_input;
    p.shared_intermediate = shared_inter;
    p.shared_weight = kFp8.format, p.shared_scaled = true, p.shared_scaling = kFp8.scaling;
    ExpertTensors t = separate(w);
    t.shared_gate = shared.gate[0], t.shared_up = shared.up[0], t.shared_down = shared.down[0];
    const Extras extras{p.gated, {}, {}, {}, on_input, &shared, shared_inter, 1};
    const Tensor x = small_input(7, hidden, F::bf16);
    const Routing r = random_routing(7, experts, 2, 3);
    const Expected e = expected_moe(x, r, w, inter, extras, gpu_roundings);
    EXPECT_TRUE(within(to_floats(moe_on(stream, x, r, p, t)), e.values, e.magnitudes));
  }
}

// The sum of more experts than are under way at once, in columns of three blocks of which the last
// is not full, and of a shared expert with a weight of its own.
TEST(MoeGpu, CombineOfManyExpertsAndAScaledSharedOne) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t experts = 12, hidden = 1088, inter = 64, tokens = 2;
  const Experts w = random_experts(kBf16, experts, hidden, inter);
  const Experts shared = random_experts(kBf16, 1, hidden, inter);
  MoeProblem p = problem_of(kBf16, experts, hidden, inter);
  p.shared_intermediate = inter, p.shared_weight = F::bf16;
  p.tokens = tokens, p.top_k = 11, p.x = F::bf16;
  ExpertTensors t = separate(w);
  t.shared_gate = shared.gate[0], t.shared_up = shared.up[0], t.shared_down = shared.down[0];
  const Extras extras{p.gated, {}, {}, {}, false, &shared, inter, 0.75f};
  const Tensor x = small_input(tokens, hidden, F::bf16);
  const Routing r = random_routing(tokens, experts, p.top_k, 3);
  const Expected e = expected_moe(x, r, w, inter, extras, gpu_roundings);
  const Device& device = stream.device();
  const MoeWeights weights = bind_experts(p, on(device, t));
  const Tensor out = Tensor::empty(x.shape(), F::bf16, device);
  const Tensor scale =
      Tensor::from<float>(std::vector<float>(tokens, 0.75f), {tokens}, F::f32).to(device);
  run(plan(p, device),
      {x.to(device), on(device, r), nullptr, nullptr, nullptr, out, &weights, scale}, stream);
  stream.synchronize();
  EXPECT_TRUE(within(to_floats(out.to(Device::cpu())), e.values, e.magnitudes));
}

// The residual is added before rounding, from a tensor of its own or from the output.
TEST(MoeGpu, Residual) {
  const WeightSpec nvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};
  for (const Device& device :
       {Device::cpu(), Device::simulator(Arch::sm_80), Device::simulator(Arch::sm_90a)}) {
    Stream stream(device);
    for (const int64_t tokens : {1, 3}) {
      if (kSanitized && tokens > 1) continue;
      const int64_t experts = 70, hidden = 192, inter = 64;
      const Experts w = random_experts(nvfp4, 3, hidden, inter, experts - 3);
      MoeProblem p = problem_of(nvfp4, experts, hidden, inter);
      p.tokens = tokens, p.top_k = 2, p.x = F::f32;
      const Routing r = on(device, random_routing(tokens, 3, 2, 3));
      const MoeWeights weights = bind_experts(p, on(device, separate(w)));
      const Tensor x = small_input(tokens, hidden, F::f32).to(device);
      const Tensor residual = random_tensor({tokens, hidden}, F::f32, 9);
      const auto with = [&](const Tensor& out, const Tensor& more) {
        run(plan(p, device), {x, r, nullptr, nullptr, nullptr, out, &weights, {}, more}, stream);
        stream.synchronize();
        return to_floats(out.to(Device::cpu()));
      };
      const Tensor out = Tensor::empty(x.shape(), F::f32, device);
      std::vector<float> expected = with(out, {});
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += residual.data<float>()[i];
      const Tensor in_place = residual.to(device).contiguous_copy();
      EXPECT_EQ(with(out, residual.to(device)), expected) << device.name();
      EXPECT_EQ(with(in_place, in_place), expected) << device.name();
      expect_error([&] { with(out, residual.slice(1, 0, 64)); }, {"residual is", "192"});
    }
  }
}

// Input-major experts are transposed in place: the same bits.
TEST(MoeGpu, InputMajor) {
  Stream stream(Device::simulator(Arch::sm_80));
  const WeightSpec int8{F::int8, true, {F::f16, 1, 32}};
  for (const WeightSpec& spec : {kBf16, int8}) {
    const Experts w = random_experts(spec, 3, 64, 64);
    const MoeProblem p = problem_of(spec, 3, 64, 64);
    const Tensor x = small_input(6, 64, F::bf16);
    const Routing r = random_routing(6, 3, 2, 3);
    ExpertTensors t = fused(w, false);
    const std::vector<float> want = to_floats(moe_on(stream, x, r, p, t));
    t.gate_up = input_major(t.gate_up), t.all_down = input_major(t.all_down);
    t.input_major = true;
    EXPECT_EQ(to_floats(moe_on(stream, x, r, p, t)), want);
  }
  ExpertTensors t = on(stream.device(), fused(random_experts(kMxfp4, 2, 64, 64), false));
  t.input_major = true;
  expect_error([&] { bind_experts(problem_of(kMxfp4, 2, 64, 64), t); }, {"8 bits or more"});
}

// W4A4: the bits of the same experts are those of x rounded before.
TEST(MoeGpu, QuantisedActivations) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const Experts w = random_experts(kNvfp4, 3, 128, 64);
  MoeProblem p = problem_of(kNvfp4, 3, 128, 64);
  p.quantize_x = parse_quantization("nvfp4");
  const Tensor x = small_input(4, 128, F::bf16);
  const Routing r = random_routing(4, 3, 2, 3);
  const std::vector<float> got = to_floats(moe_on(stream, x, r, p, separate(w)));
  const std::vector<float> want = to_floats(moe(x, r, p, bind_experts(p, separate(w))));
  // A quantised value of h may differ where the sums before it do: an eighth of a step of E2M1 in
  // all.
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]), norm += want[i] * want[i];
  }
  EXPECT_LT(error, 1e-4 * norm);
}

TEST(MoeGpu, StrictUnderAdversarialSchedules) {
  const Experts w = random_experts(kNvfp4, 5, 64, 48);
  MoeProblem p = problem_of(kNvfp4, 5, 64, 48);
  p.scale_input = true;
  const Tensor x = small_input(9, 64, F::f32);
  const Tensor logits = random_tensor({9, 5}, F::f32, 8);
  std::vector<float> first;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Stream stream(Device::simulator(Arch::sm_90a));
    configure(stream, {.severity = Options::Severity::strict,
                       .numerics = Options::Numerics::fast,
                       .schedule = Options::Schedule::adversarial,
                       .seed = seed,
                       .throws = false});
    const Routing r = on(Device::cpu(), route(logits.to(stream.device()), {}, stream));
    const std::vector<float> y = to_floats(moe_on(stream, x, r, p, separate(w)));
    const SimulatorReport report = simulator_report(stream);
    ASSERT_TRUE(report.clean()) << "seed " << seed << "\n" << to_string(report);
    if (first.empty()) first = y;
    ASSERT_EQ(y, first) << "seed " << seed;
  }
}

// An expert that does not exist is an error of the next wait, and counts as none.
TEST(MoeGpu, ExpertsOutOfRange) {
  Stream stream(Device::simulator(Arch::sm_80));
  const Experts w = random_experts(kBf16, 2, 16, 24);
  const MoeProblem p = problem_of(kBf16, 2, 16, 24);
  const Routing r = random_routing(3, 2, 1, 1);
  r.experts.data<int32_t>()[1] = 2;
  const Tensor x = random_tensor({3, 16}, F::f32, 3);
  expect_error([&] { moe_on(stream, x, r, p, separate(w)); },
               {"routing.experts has 2 in slot 1", "2 experts"});
  stream.synchronize();
}

TEST(MoeGpu, Errors) {
  Stream stream(Device::simulator(Arch::sm_80));
  const Experts w = random_experts(kBf16, 2, 16, 24);
  const MoeProblem p = problem_of(kBf16, 2, 16, 24);
  const Tensor x = random_tensor({2, 16}, F::f32, 3);
  const Routing r = random_routing(2, 2, 1, 1);
  const Device& device = stream.device();
  expect_error([&] { moe(x.to(device), on(device, r), p, bind_experts(p, separate(w)), stream); },
               {"weights are on cpu", "sim:sm_80"});
  const std::vector<Tensor> gate = on(device, separate(w)).gate;
  expect_error([&] { moe(x.to(device), on(device, r), gate, gate, gate, stream); },
               {"weights is null", "bind_experts"});
}

}  // namespace
}  // namespace halftone::test

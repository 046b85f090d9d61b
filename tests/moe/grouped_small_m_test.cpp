// The grouped small-M GEMMs on a simulated sm_90a.
#include "moe/gpu_cases.h"

#include <tuple>

namespace halftone::test {
namespace {

using F = Format;

const WeightSpec kBlocks{F::fp8_e4m3, true, {F::f32, 128, 128}};
const WeightSpec kMxfp8{F::mxfp8, true, {F::ue8m0, 1, 32}};
const WeightSpec kMxfp4{F::mxfp4, true, {F::ue8m0, 1, 32}};
const WeightSpec kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};
const WeightSpec kInt4{F::int4, true, {F::f16, 1, 128}};
const WeightSpec kShort{F::int4, true, {F::f32, 1, 32}};
// Every weight type and scale mode.
const std::vector<WeightSpec> kSpecs = {kNvfp4,
                                        {F::fp8_e4m3, true, {F::f32, 1, 0}},
                                        kBlocks,
                                        {F::fp8_e4m3, true, {F::bf16, 1, 256}},
                                        kMxfp8,
                                        {F::fp8_e5m2, true, {F::f32, 1, 0}},
                                        {F::fp8_e5m2, true, {F::f32, 128, 128}},
                                        {F::int8, true, {F::f32, 1, 0}},
                                        {F::int8, true, {F::f16, 1, 128}},
                                        kMxfp4,
                                        kInt4,
                                        {F::int4, true, {F::bf16, 1, 64}},
                                        kShort};

void expect_columns(MoeProblem p, int64_t tokens, int top_k, int64_t columns,
                    const Device& device) {
  p.tokens = tokens, p.top_k = top_k;
  const std::string kernel = describe(plan(p, device));
  const std::string tiles =
      concat("gemm_sm90_small_m_grouped_w", bits(p.weight), ", tiles of 128 x ", columns);
  const size_t first = kernel.find(tiles);
  ASSERT_NE(first, std::string::npos) << kernel;
  ASSERT_NE(kernel.find(tiles, first + 1), std::string::npos) << kernel;
}

struct Layer {
  WeightSpec spec;
  int64_t experts, hidden, inter;
};
// Of a layer whose experts have the rows that `r` gives them, in parts of up to `columns`.
void expect_layer(const Layer& l, const Routing& r, int64_t columns, Stream& stream) {
  const int64_t tokens = r.experts.size(0);
  SCOPED_TRACE(concat(label(l.spec), ", ", tokens, " tokens, ", l.hidden, " x ", l.inter));
  const Experts w = random_experts(l.spec, l.experts, l.hidden, l.inter);
  const MoeProblem p = problem_of(l.spec, l.experts, l.hidden, l.inter);
  const Tensor x = small_input(tokens, l.hidden, F::bf16);
  const Expected e = expected_moe(x, r, w, l.inter, {}, one_chain_roundings);
  EXPECT_TRUE(within(to_floats(moe_on(stream, x, r, p, separate(w))), e.values, e.magnitudes));
  expect_columns(p, tokens, static_cast<int>(r.experts.size(1)), columns, stream.device());
}
// Token t to expert of[t].
Routing to_experts(const std::vector<int32_t>& of, int64_t experts) {
  const Routing r = random_routing(static_cast<int64_t>(of.size()), experts, 1, 3);
  std::copy(of.begin(), of.end(), r.experts.data<int32_t>());
  return r;
}
// As many tokens to each expert as `rows` says, in any order.
Routing with_rows(const std::vector<int>& rows) {
  std::vector<int32_t> of;
  for (size_t e = 0; e < rows.size(); ++e) of.insert(of.end(), static_cast<size_t>(rows[e]), e);
  for (size_t i = 0; i < of.size(); ++i) std::swap(of[i], of[i * 7 % of.size()]);
  return to_experts(of, static_cast<int64_t>(rows.size()));
}

// Parts of every width, full and not; K of one stage, and of several the last of which is not full.
TEST(MoeGroupedSmallM, EveryFormat) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& spec : some(kSpecs, 1)) {
    expect_layer({spec, 6, 384, 256}, random_routing(11, 6, 2, 3), 8, stream);
    if (kSanitized) continue;
    expect_layer({spec, 4, 256, 640}, random_routing(18, 4, 2, 3), 16, stream);
    const int64_t widest = bits(spec.format) == 8 ? 24 : 32;
    expect_layer({spec, 3, 128, 384}, random_routing(25, 3, 2, 3), widest, stream);
  }
}

// Experts without rows, with one, with all that a part takes, with one more, with three parts.
TEST(MoeGroupedSmallM, ChunksOfEverySize) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& spec : some<WeightSpec>({kNvfp4, kBlocks, kMxfp4, kShort}, 1)) {
    expect_layer({spec, 10, 256, 128}, with_rows({0, 1, 8, 9, 19, 0, 0, 0, 2, 0}), 8, stream);
  }
}

// Scales of rows that begin on 2 bytes, on 4 and on 16; matrices that are no whole tiles; rows that
// are no whole lines.
TEST(MoeGroupedSmallM, EdgesOfTilesAndLines) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const auto& [spec, hidden, inter] :
       {std::tuple<WeightSpec, int64_t, int64_t>{kNvfp4, 320, 576},
        {kNvfp4, 512, 768},
        {kMxfp4, 640, 896},
        {kMxfp4, 320, 704},
        {kShort, 320, 192},
        {{F::int4, true, {F::f16, 1, 0}}, 320, 192},
        {kMxfp8, 640, 128},
        {{F::fp8_e4m3, true, {F::f32, 1, 0}}, 192, 320},
        {{F::int8, true, {F::f32, 1, 0}}, 64, 704}}) {
    if (kSanitized && hidden != 320) continue;
    expect_layer({spec, 5, hidden, inter}, random_routing(9, 5, 2, 5), 8, stream);
  }
}

// Blocks that have several tiles of a part: the scales of the next are asked for while one runs.
TEST(MoeGroupedSmallM, PersistentCtas) {
  if (kSanitized) GTEST_SKIP() << "as EdgesOfTilesAndLines, but for time";
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& spec : {kBlocks, kNvfp4, kMxfp4, kInt4, kShort}) {
    expect_layer({spec, 6, 256, 6784}, with_rows({0, 3, 0, 9, 0, 6}), 8, stream);
  }
}

// UE8M0 scales that BF16 weights cannot hold.
TEST(MoeGroupedSmallM, ScalesBeyondBf16) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t experts = 5, hidden = 256, inter = 128, tokens = 18;
  for (const WeightSpec& spec : {kMxfp4, kMxfp8}) {
    Experts w = random_experts(spec, experts, hidden, inter);
    auto* scales = w.down[2].scales().data<uint8_t>();
    for (int64_t i = 0; i < hidden * inter / 32; i += 7) {
      const int exponent = 129 + static_cast<int>(i % 6);
      for (int64_t j = i * 32; j < (i + 1) * 32; ++j) {
        w.down_values[2][static_cast<size_t>(j)] *= std::ldexp(1.0, exponent - scales[i]);
      }
      scales[i] = static_cast<uint8_t>(exponent);
    }
    const Tensor x = small_input(tokens, hidden, F::bf16);
    const Routing r = random_routing(tokens, experts, 1, 3);
    const Expected e = expected_moe(x, r, w, inter, {}, one_chain_roundings);
    const MoeProblem p = problem_of(spec, experts, hidden, inter);
    EXPECT_TRUE(within(to_floats(moe_on(stream, x, r, p, separate(w))), e.values, e.magnitudes))
        << label(spec);
  }
}

TEST(MoeGroupedSmallM, GptOss) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const auto columns = [&](MoeProblem p) { expect_columns(p, 13, 2, 16, stream.device()); };
  expect_gpt_oss(stream, 4, 128, 384, 13, columns);
  // Rows of scales of 10 and 14 bytes; those of gates begin at 0, and of their other halves at 10.
  expect_gpt_oss(stream, 4, 320, 448, 13, columns);
}

// The shared expert goes to the dense small-M GEMM.
TEST(MoeGroupedSmallM, SharedExpert) {
  const int64_t experts = 4, hidden = 256, inter = 128, shared_inter = 512, tokens = 21;
  for (const WeightSpec& spec : {kBlocks, kNvfp4}) {
    Stream stream(Device::simulator(Arch::sm_90a));
    configure(stream, {.throws = false});
    const Experts w = random_experts(kNvfp4, experts, hidden, inter);
    const Experts shared = random_experts(spec, 1, hidden, shared_inter);
    MoeProblem p = problem_of(kNvfp4, experts, hidden, inter);
    p.shared_intermediate = shared_inter;
    p.shared_weight = spec.format, p.shared_scaled = true, p.shared_scaling = spec.scaling;
    ExpertTensors t = separate(w);
    t.shared_gate = shared.gate[0], t.shared_up = shared.up[0], t.shared_down = shared.down[0];
    const Extras extras{p.gated, {}, {}, {}, false, &shared, shared_inter, 1};
    const Tensor x = small_input(tokens, hidden, F::bf16);
    const Routing r = random_routing(tokens, experts, 2, 3);
    const Expected e = expected_moe(x, r, w, inter, extras, one_chain_roundings);
    EXPECT_TRUE(within(to_floats(moe_on(stream, x, r, p, t)), e.values, e.magnitudes));
    const SimulatorReport report = simulator_report(stream);
    EXPECT_TRUE(report.clean()) << to_string(report);
    const char* kernel = bits(spec.format) == 4 ? "\n  w4.cuh:" : "\n  w8.cuh:";
    EXPECT_NE(to_string(report).find(kernel), std::string::npos) << to_string(report);
  }
}

TEST(MoeGroupedSmallM, StrictUnderAdversarialSchedules) {
  for (const WeightSpec& spec : some(kSpecs, 1)) {
    expect_strict(spec, 5, 384, 256, with_rows({1, 0, 9, 7, 3}), 2);
    if (kSanitized) continue;
    expect_strict(spec, 3, 384, 256, random_routing(15, 3, 2, 3), 2);
    expect_strict(spec, 3, 384, 128, random_routing(20, 3, 2, 3), 2);
  }
  if (kSanitized) return;
  // Every stage is used again, by other tiles, of which a block has more than stages, and so are
  // both epilogue buffers of 8-bit weights, and the only one.
  expect_strict(kNvfp4, 8, 64, 9600, random_routing(13, 8, 2, 3), 1);
  expect_strict(kBlocks, 8, 128, 6784, random_routing(13, 8, 2, 3), 1);
  expect_strict(kNvfp4, 8, 384, 2048, random_routing(13, 8, 2, 3), 2);
  expect_strict(kBlocks, 3, 128, 6784, random_routing(20, 3, 2, 3), 2);
}

// A token at another expert breaks the bound.
TEST(MoeGroupedSmallM, ToleranceBreaksOnSmallErrors) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const Experts w = random_experts(kNvfp4, 4, 256, 128);
  const MoeProblem p = problem_of(kNvfp4, 4, 256, 128);
  const Tensor x = small_input(17, 256, F::bf16);
  const Routing r = with_rows({5, 3, 8, 1});
  const std::vector<float> got = to_floats(moe_on(stream, x, r, p, separate(w)));
  Expected e = expected_moe(x, r, w, 128, {}, one_chain_roundings);
  EXPECT_TRUE(within(got, e.values, e.magnitudes));
  int32_t* of = r.experts.data<int32_t>();
  of[16] = (of[16] + 1) % 4;
  e = expected_moe(x, r, w, 128, {}, one_chain_roundings);
  EXPECT_FALSE(within(got, e.values, e.magnitudes));
}

}  // namespace
}  // namespace halftone::test

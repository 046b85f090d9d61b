// Experts with a few rows of x each in Hopper's kernel for them, simulated.
#include "moe/gpu_cases.h"

#include <tuple>

namespace halftone::test {
namespace {

using F = Format;

const WeightSpec kBlocks{F::fp8_e4m3, true, {F::f32, 128, 128}};
const WeightSpec kMxfp4{F::mxfp4, true, {F::ue8m0, 1, 32}};
const WeightSpec kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};
// Every weight type and scale mode.
const std::vector<WeightSpec> kSpecs = {kNvfp4,
                                        {F::fp8_e4m3, true, {F::f32, 0, 0}},
                                        {F::fp8_e4m3, true, {F::f32, 1, 0}},
                                        kBlocks,
                                        {F::fp8_e4m3, true, {F::bf16, 1, 64}},
                                        {F::fp8_e5m2, true, {F::f32, 128, 128}},
                                        {F::fp8_e5m2, true, {F::f32, 1, 0}},
                                        {F::fp8_e5m2, true, {F::f16, 1, 64}},
                                        {F::mxfp8, true, {F::ue8m0, 1, 32}},
                                        {F::int8, true, {F::f32, 1, 0}},
                                        {F::int8, true, {F::f16, 1, 64}},
                                        {F::int8, true, {F::f32, 1, 128}},
                                        kMxfp4,
                                        {F::int4, true, {F::f32, 1, 128}},
                                        {F::int4, true, {F::f16, 1, 64}}};

bool fits_gemv(MoeProblem p, int64_t tokens, int top_k) {
  p.tokens = tokens, p.top_k = top_k;
  const std::string kernel = describe(plan(p, Device::simulator(Arch::sm_90a)));
  return kernel.find("up by gemv_sm90_grouped,") != std::string::npos &&
         kernel.find("down by gemv_sm90_grouped,") != std::string::npos;
}

struct Layer {
  WeightSpec spec;
  int64_t experts, hidden, inter;
};
// Experts without rows, as many as make those that have some few.
int64_t unused(int64_t rows) { return 16 * rows; }
// Of a layer whose experts have the rows that `r` gives them.
void expect_layer(const Layer& l, const Routing& r, int64_t tokens, int top_k, Stream& stream) {
  SCOPED_TRACE(concat(label(l.spec), ", ", tokens, " tokens, ", l.hidden, " x ", l.inter));
  const int64_t more = unused(tokens * top_k);
  const Experts w = random_experts(l.spec, l.experts, l.hidden, l.inter, more);
  const MoeProblem p = problem_of(l.spec, l.experts + more, l.hidden, l.inter);
  ASSERT_TRUE(fits_gemv(p, tokens, top_k));
  const Tensor x = small_input(tokens, l.hidden, F::bf16);
  const Expected e = expected_moe(x, r, w, l.inter, {}, one_chain_roundings);
  EXPECT_TRUE(within(to_floats(moe_on(stream, x, r, p, separate(w))), e.values, e.magnitudes));
}
// Token t of `tokens` to expert of[t].
Routing to_experts(const std::vector<int32_t>& of, int64_t experts) {
  const Routing r = random_routing(static_cast<int64_t>(of.size()), experts, 1, 3);
  std::copy(of.begin(), of.end(), r.experts.data<int32_t>());
  return r;
}

// One token; several, whose experts have none to a few of them.
TEST(MoeGroupedGemv, EveryFormat) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& spec : kSanitized ? std::vector{kBlocks, kNvfp4, kMxfp4} : kSpecs) {
    for (const int64_t tokens : {1, 5}) {
      if (kSanitized && tokens > 1) continue;
      expect_layer({spec, 6, 384, 256}, random_routing(tokens, 6, 2, 3), tokens, 2, stream);
    }
  }
}

// Parts of every size: an expert with one, two, three, four and nine rows, and one without.
TEST(MoeGroupedGemv, ChunksOfEverySize) {
  Stream stream(Device::simulator(Arch::sm_90a));
  std::vector<int32_t> of;
  for (const int32_t expert : {0, 1, 1, 2, 2, 2, 3, 3, 3, 3}) of.push_back(expert);
  of.insert(of.end(), 9, 5);
  std::swap(of[0], of[12]), std::swap(of[3], of[17]);
  const auto tokens = static_cast<int64_t>(of.size());
  for (const WeightSpec& spec : some<WeightSpec>({kNvfp4, kBlocks, kMxfp4}, 1)) {
    expect_layer({spec, 10, 256, 128}, to_experts(of, 10), tokens, 1, stream);
  }
}

// Rows of W that are no whole lines, matrices that are no whole tiles, blocks with tiles of several
// chunks and of several places in a chunk.
TEST(MoeGroupedGemv, EdgesOfTilesAndLines) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const auto& [spec, hidden, inter] :
       {std::tuple<WeightSpec, int64_t, int64_t>{{F::fp8_e4m3, true, {F::f32, 1, 0}}, 272, 80},
        {{F::mxfp8, true, {F::ue8m0, 1, 32}}, 160, 224},
        {kMxfp4, 352, 96},
        {kNvfp4, 320, 64},
        {{F::int4, true, {F::f16, 1, 64}}, 192, 704},
        {kBlocks, 2048, 768}}) {
    const bool large = hidden == 2048;
    if (kSanitized && hidden != 272 && hidden != 320) continue;
    const int64_t tokens = large ? 2 : 7;
    expect_layer({spec, 8, hidden, inter}, random_routing(tokens, 8, 2, 5), tokens, 2, stream);
  }
}

// Blocks that have several tiles of a part: the scales of the next are asked for while one runs.
TEST(MoeGroupedGemv, PersistentCtas) {
  if (kSanitized) GTEST_SKIP() << "as EdgesOfTilesAndLines, but for time";
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& spec :
       {kBlocks, kNvfp4, kMxfp4, WeightSpec{F::int4, true, {F::f16, 1, 64}}}) {
    // Whole tiles of 96 outputs, whose scales are steps apart, or the last one is not.
    const bool whole = spec.format == F::mxfp4 || spec.format == F::int4;
    if (whole) {
      expect_layer({spec, 8, 256, 6720}, to_experts({1, 0, 4, 6, 7, 2}, 8), 6, 1, stream);
    } else {
      expect_layer({spec, 8, 256, 6784}, to_experts({1, 1, 4, 6, 7, 2}, 8), 6, 1, stream);
    }
  }
}

// The bits of a token are its own: alone, and among others of its experts.
TEST(MoeGroupedGemv, TokensAreBatchInvariant) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t hidden = 256, tokens = 9;
  for (const WeightSpec& spec : some<WeightSpec>({kNvfp4, kBlocks}, 1)) {
    const Experts w = random_experts(spec, 8, hidden, 128, unused(tokens));
    const MoeProblem p = problem_of(spec, 8 + unused(tokens), hidden, 128);
    const Tensor x = small_input(tokens, hidden, F::bf16);
    ASSERT_TRUE(fits_gemv(p, tokens, 1));
    const Routing r = to_experts({1, 4, 1, 1, 4, 6, 1, 1, 1}, 8);
    const std::vector<float> all = to_floats(moe_on(stream, x, r, p, separate(w)));
    for (int64_t t = 0; t < tokens; t += kSanitized ? 4 : 1) {
      const Routing own{r.experts.slice(0, t, t + 1), r.weights.slice(0, t, t + 1)};
      const std::vector<float> one =
          to_floats(moe_on(stream, x.slice(0, t, t + 1), own, p, separate(w)));
      EXPECT_EQ(one, std::vector<float>(all.begin() + t * hidden, all.begin() + (t + 1) * hidden));
    }
  }
}

// A single token, whose rows nobody sorts: the bits that it has among others. Also with weights
// that multiply the input of its experts.
TEST(MoeGroupedGemv, OneTokenOfSeveralExperts) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t hidden = 256, tokens = 3;
  const int top_k = 4;
  for (const WeightSpec& spec : some<WeightSpec>({kNvfp4, kBlocks}, 1)) {
    for (const bool scale_input : {false, true}) {
      if (kSanitized && !scale_input) continue;
      const int64_t more = unused(tokens * top_k);
      const Experts w = random_experts(spec, 8, hidden, 128, more);
      MoeProblem p = problem_of(spec, 8 + more, hidden, 128);
      p.scale_input = scale_input;
      const Tensor x = small_input(tokens, hidden, F::bf16);
      ASSERT_TRUE(fits_gemv(p, tokens, top_k));
      const Routing r = random_routing(tokens, 8, top_k, 3);
      const int32_t chosen[] = {5, 1, 7, 2, 0, 1, 2, 3, 6, 5, 4, 1};
      std::copy(std::begin(chosen), std::end(chosen), r.experts.data<int32_t>());
      const std::vector<float> all = to_floats(moe_on(stream, x, r, p, separate(w)));
      for (int64_t t = 0; t < tokens; ++t) {
        const Routing own{r.experts.slice(0, t, t + 1), r.weights.slice(0, t, t + 1)};
        const std::vector<float> one =
            to_floats(moe_on(stream, x.slice(0, t, t + 1), own, p, separate(w)));
        EXPECT_EQ(one,
                  std::vector<float>(all.begin() + t * hidden, all.begin() + (t + 1) * hidden));
      }
    }
  }
}

// What is no expert is an error of the next wait, and counts as none.
TEST(MoeGroupedGemv, OneTokenWithExpertsOutOfRange) {
  const Device device = Device::simulator(Arch::sm_90a);
  Stream stream(device);
  const int64_t hidden = 256, experts = 8 + unused(3);
  const Experts w = random_experts(kNvfp4, 8, hidden, 128, unused(3));
  MoeProblem p = problem_of(kNvfp4, experts, hidden, 128);
  p.tokens = 1, p.top_k = 3, p.x = F::bf16;
  ASSERT_TRUE(fits_gemv(p, 1, 3));
  const MoeWeights weights = bind_experts(p, on(device, separate(w)));
  const Tensor x = small_input(1, hidden, F::bf16).to(device);
  const auto result = [&](const Routing& r) {
    const Tensor out = Tensor::zeros({1, hidden}, F::bf16, device);
    run(plan(p, device), {x, on(device, r), nullptr, nullptr, nullptr, out, &weights}, stream);
    return out;
  };
  for (const int32_t wrong : {-1, static_cast<int32_t>(experts)}) {
    const Routing r = random_routing(1, 8, 3, 3);
    const int32_t chosen[] = {5, wrong, 2};
    std::copy(std::begin(chosen), std::end(chosen), r.experts.data<int32_t>());
    const Tensor out = result(r);
    expect_error([&] { stream.synchronize(); },
                 {concat("routing.experts has ", wrong, " in slot 1")});
    r.experts.data<int32_t>()[1] = 0, r.weights.data<float>()[1] = 0;
    const Tensor without = result(r);
    stream.synchronize();
    EXPECT_EQ(to_floats(out.to(Device::cpu())), to_floats(without.to(Device::cpu())));
  }
}

// Scales that come in lines with every stage, as rows with the first stage of a tile, and those
// that lanes load where they lie for neither: the same bits. Of one matrix an expert, of fused
// ones, and of fused ones whose rows are interleaved.
TEST(MoeGroupedGemv, EveryScaleMode) {
  const Device device = Device::simulator(Arch::sm_90a);
  Stream stream(device);
  configure_strict(stream);
  const WeightSpec int4{F::int4, true, {F::f16, 1, 32}};
  // Lines of 64, 64 and 48 bytes; rows of 90 bytes in tiles of two stages. `more` elements in each
  // row of scales take them off 16 bytes, or to the same banks.
  for (const auto& [spec, hidden, inter, more] :
       {std::tuple<WeightSpec, int64_t, int64_t, int64_t>{kNvfp4, 2048, 768, 4},
        {int4, 2048, 192, 2},
        {kMxfp4, 3072, 192, 4},
        {kMxfp4, 2880, 96, 40}}) {
    for (const bool one : {true, false}) {
      for (const bool interleaved : {false, true}) {
        if (one && interleaved) continue;
        if (kSanitized && (hidden != 2880 || !interleaved)) continue;
        SCOPED_TRACE(concat(label(spec), one ? "" : ", fused", interleaved ? ", interleaved" : ""));
        const int64_t used = 3, experts = used + unused(3);
        const Experts w = random_experts(spec, used, hidden, inter, experts - used);
        MoeProblem p = problem_of(spec, experts, hidden, inter);
        p.tokens = 1, p.top_k = 3, p.x = F::bf16;
        ASSERT_TRUE(fits_gemv(p, 1, 3));
        ExpertTensors t = on(device, one ? separate(w) : fused(w, interleaved));
        const Routing r = on(device, random_routing(1, used, 3, 3));
        const Tensor x = small_input(1, hidden, F::bf16).to(device);
        const auto result = [&] {
          const MoeWeights weights = bind_experts(p, t);
          const Tensor y = Tensor::zeros({1, hidden}, F::bf16, device);
          run(plan(p, device), {x, r, nullptr, nullptr, nullptr, y, &weights}, stream);
          const SimulatorReport report = simulator_report(stream);
          EXPECT_TRUE(report.clean()) << to_string(report);
          return std::pair(to_floats(y.to(Device::cpu())), report.counters.tma_bytes_read);
        };
        const uint64_t before = simulator_report(stream).counters.tma_bytes_read;
        const auto [copied, after] = result();
        // The same scales in rows that are longer.
        const auto apart = [&](Tensor& m) {
          const Tensor scales = m.scales().to(Device::cpu());
          const int last = scales.rank() - 1;
          const int64_t size = bits(scales.format()) / 8, row = scales.size(last);
          Shape wide = scales.shape();
          wide[last] += more;
          const Tensor room = Tensor::zeros(wide, scales.format());
          for (int64_t i = 0; i < scales.numel() / row; ++i) {
            std::memcpy(room.data<char>() + i * wide[last] * size,
                        scales.data<char>() + i * row * size, static_cast<size_t>(row * size));
          }
          m = m.quantized(m.scaling(), room.to(device).slice(last, 0, row), m.tensor_scale());
        };
        for (std::vector<Tensor>* all : {&t.gate, &t.up, &t.down}) {
          for (Tensor& m : *all) apart(m);
        }
        if (!one) apart(t.gate_up), apart(t.all_down);
        const auto [loaded, end] = result();
        EXPECT_EQ(copied, loaded);
        EXPECT_LT(end - after, after - before);
      }
    }
  }
}

// Blocks with several tiles whose rows of scales come by bulk copies: a place for them is not
// filled again while the tile before is multiplied.
TEST(MoeGroupedGemv, RowsOfScalesOfSeveralTiles) {
  if (kSanitized) GTEST_SKIP() << "as ScalesByEveryWay, but for time";
  const int64_t hidden = 2880, inter = 4608;
  expect_strict(kMxfp4, 2, hidden, inter, random_routing(1, 2, 2, 3), 1, unused(2));
}

TEST(MoeGroupedGemv, GptOss) {
  Stream stream(Device::simulator(Arch::sm_90a));
  expect_gpt_oss(stream, 8, 128, 384, 2,
                 [](const MoeProblem& p) { ASSERT_TRUE(fits_gemv(p, 2, 2)); });
}

TEST(MoeGroupedGemv, StrictUnderAdversarialSchedules) {
  for (const WeightSpec& spec : some(kSpecs, 1)) {
    expect_strict(spec, 5, 384, 256, to_experts({0, 2, 2, 3, 3, 3, 3, 3}, 5), 2, unused(8));
  }
  if (kSanitized) return;
  for (const WeightSpec& spec : {kBlocks, kNvfp4}) {
    expect_strict(spec, 5, 384, 256, random_routing(1, 5, 3, 3), 2, unused(3));
  }
  expect_strict(kNvfp4, 16, 384, 2048, random_routing(10, 16, 2, 3), 2, unused(20));
}

// A token at another expert breaks the bound.
TEST(MoeGroupedGemv, ToleranceBreaksOnSmallErrors) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const Experts w = random_experts(kNvfp4, 4, 256, 128);
  const MoeProblem p = problem_of(kNvfp4, 4, 256, 128);
  const Tensor x = small_input(4, 256, F::bf16);
  const Routing r = to_experts({0, 1, 1, 3}, 4);
  const std::vector<float> got = to_floats(moe_on(stream, x, r, p, separate(w)));
  Expected e = expected_moe(x, r, w, 128, {}, one_chain_roundings);
  EXPECT_TRUE(within(got, e.values, e.magnitudes));
  std::swap(r.experts.data<int32_t>()[0], r.experts.data<int32_t>()[3]);
  e = expected_moe(x, r, w, 128, {}, one_chain_roundings);
  EXPECT_FALSE(within(got, e.values, e.magnitudes));
}

}  // namespace
}  // namespace halftone::test

// With batch_invariant a token has the same bits alone and among others, and a row of a group too,
// on every architecture.
#include "moe/grouped_cases.h"
#include "support/sanitized.h"

namespace halftone::test {
namespace {

using F = Format;
constexpr Arch kArchs[] = {Arch::sm_80, Arch::sm_89, Arch::sm_90a, Arch::sm_100a, Arch::sm_120a};
const WeightSpec kBf16{F::bf16}, kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true},
    kFp8{F::fp8_e4m3, true, {F::f32, 1, 0}}, kBlocks{F::fp8_e4m3, true, {F::f32, 128, 128}};

std::vector<WeightSpec> specs(Arch arch) {
  if (kSanitized) return {kNvfp4};
  return arch == Arch::sm_90a ? std::vector{kBf16, kNvfp4, kFp8, kBlocks}
                              : std::vector{kBf16, kNvfp4};
}

// The layer with a shared expert, on so many of the tokens, the last ones.
std::vector<float> layer(Stream& stream, const WeightSpec& spec, const Tensor& x,
                         const Routing& all, const Experts& w, int64_t tokens, bool invariant) {
  const int64_t count = x.size(0), hidden = x.size(1);
  MoeProblem p = problem_of(spec, 4, hidden, 128);
  p.shared_intermediate = 128, p.shared_weight = F::bf16;
  p.batch_invariant = invariant;
  ExpertTensors t = separate(w);
  t.shared_gate = random_tensor({128, hidden}, F::bf16, 31);
  t.shared_up = random_tensor({128, hidden}, F::bf16, 32);
  t.shared_down = random_tensor({hidden, 128}, F::bf16, 33);
  const auto last = [&](const Tensor& m) { return m.slice(0, count - tokens, count); };
  return to_floats(moe_on(stream, last(x), {last(all.experts), last(all.weights)}, p, t));
}

TEST(MoeBatchInvariance, TokensAloneAndAmongOthers) {
  for (const Arch arch : kArchs) {
    Stream stream(Device::simulator(arch), 1);
    configure(stream, {.numerics = SimulatorOptions::Numerics::fast});
    for (const WeightSpec& spec : specs(arch)) {
      SCOPED_TRACE(concat(label(spec), " on ", name(arch)));
      const int64_t most = 300, hidden = 256;
      const Tensor x = small_input(most, hidden, F::bf16);
      const Routing r = random_routing(most, 4, 2, 3);
      const Experts w = random_experts(spec, 4, hidden, 128);
      const std::vector<float> all = layer(stream, spec, x, r, w, most, true);
      for (const int64_t tokens : {1, 2, 9, 17, 65, 129}) {
        const std::vector<float> some = layer(stream, spec, x, r, w, tokens, true);
        EXPECT_EQ(some, std::vector<float>(all.end() - tokens * hidden, all.end())) << tokens;
      }
    }
  }
}

constexpr int64_t kOutputs = 136, kMost = 290;
// The results of the second group, which has so many rows, the first of kMost.
std::vector<float> first_rows(Stream& stream, const WeightSpec& spec, int64_t rows,
                              bool invariant) {
  Grouped g = grouped(spec, {0, static_cast<int32_t>(kMost), 0}, kMost, kOutputs, 256, false);
  g.x = g.x.slice(0, 0, rows);
  g.counts = counts_of({0, static_cast<int32_t>(rows), 0});
  return grouped_product(g, stream, F::f32, {}, invariant);
}

TEST(GroupedBatchInvariance, RowsAloneAndAmongOthers) {
  for (const Arch arch : kArchs) {
    Stream stream(Device::simulator(arch), 1);
    configure(stream, {.numerics = SimulatorOptions::Numerics::fast});
    for (const WeightSpec& spec : specs(arch)) {
      SCOPED_TRACE(concat(label(spec), " on ", name(arch)));
      const std::vector<float> all = first_rows(stream, spec, kMost, true);
      for (const int64_t rows : {1, 2, 9, 17, 65, 129}) {
        EXPECT_EQ(first_rows(stream, spec, rows, true),
                  std::vector<float>(all.begin(), all.begin() + rows * kOutputs))
            << rows;
      }
    }
  }
}

// Few rows and many have kernels of their own: the comparison can fail.
TEST(GroupedBatchInvariance, TheDefaultDependsOnTheRows) {
  Stream stream(Device::simulator(Arch::sm_90a), 1);
  const std::vector<float> all = first_rows(stream, kBf16, kMost, false);
  const std::vector<float> one = first_rows(stream, kBf16, 1, false);
  EXPECT_NE(one, std::vector<float>(all.begin(), all.begin() + kOutputs));
}

}  // namespace
}  // namespace halftone::test

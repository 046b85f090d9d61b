// Experts on the GPU.
#include <tuple>

#include "cuda/gpu.h"
#include "moe/grouped_cases.h"
#include "support/draw.h"

namespace halftone::test {
namespace {

class MoeOnGpu : public Gpu {};

TEST_F(MoeOnGpu, EveryFormatAndBatch) {
  Stream stream(device);
  for (const WeightSpec& spec : weight_specs()) {
    for (const int64_t tokens : {1, 6, 130}) {
      expect_experts(stream, spec, Format::bf16, tokens, 5, 2);
    }
    expect_experts(stream, spec, Format::f32, 9, 4, 3);
  }
}

TEST_F(MoeOnGpu, GroupsOfEveryFormatAndLayout) {
  for (const WeightSpec& spec : kGroupedSpecs) {
    for (const bool masked : {false, true}) expect_groups({device}, spec, masked);
  }
}

TEST_F(MoeOnGpu, RandomProblems) {
  Stream stream(device);
  const std::vector<WeightSpec> specs = weight_specs();
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("problem " + std::to_string(seed));
    Draw draw(seed);
    const int64_t experts = draw.extent(24);
    const int top_k = static_cast<int>(1 + draw.below(std::min<int64_t>(experts, 8)));
    expect_experts(stream, draw.of(specs), draw.one_in(2) ? Format::f32 : Format::bf16,
                   draw.extent(150), experts, top_k);
    if (HasFailure()) break;
  }
}

// One token, whose experts' scales come in lines, as rows of 90 bytes, and by lanes.
TEST_F(MoeOnGpu, OneTokenAndEveryScaleMode) {
  Stream stream(device);
  const WeightSpec mxfp4{Format::mxfp4, true, {Format::ue8m0, 1, 32}};
  for (const auto& [spec, hidden, inter] :
       {std::tuple<WeightSpec, int64_t, int64_t>{
            {Format::nvfp4, true, {Format::fp8_e4m3, 1, 16}, true}, 2048, 768},
        {{Format::int4, true, {Format::f16, 1, 32}}, 2048, 192},
        {mxfp4, 3072, 192},
        {mxfp4, 2880, 96},
        {mxfp4, 2048, 768}}) {
    for (const bool interleaved : {false, true}) {
      SCOPED_TRACE(concat(label(spec), " ", hidden, interleaved ? ", interleaved" : ""));
      const int64_t used = 3, experts = 60;
      const Experts w = random_experts(spec, used, hidden, inter, experts - used);
      const MoeProblem p = problem_of(spec, experts, hidden, inter);
      const Tensor x = small_input(1, hidden, Format::bf16);
      const Routing r = random_routing(1, used, 3, 3);
      const Expected e = expected_moe(x, r, w, inter, {}, one_chain_roundings);
      const Tensor y = moe_on(stream, x, r, p, interleaved ? fused(w, true) : separate(w));
      EXPECT_TRUE(within(to_floats(y), e.values, e.magnitudes));
    }
  }
}

}  // namespace
}  // namespace halftone::test

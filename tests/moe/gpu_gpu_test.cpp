// Experts on the GPU.
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

}  // namespace
}  // namespace halftone::test

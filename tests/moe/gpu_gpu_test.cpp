// Experts on the GPU.
#include "cuda/gpu.h"
#include "moe/gpu_cases.h"

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

}  // namespace
}  // namespace halftone::test

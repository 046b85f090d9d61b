// Attention in E4M3 on the GPU.
#include <random>

#include "attention/sm90/fp8_cases.h"
#include "attention/sm90/fp8_layouts.h"
#include "cuda/gpu.h"

namespace halftone::test {
namespace {

class AttentionFp8OnGpu : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped() && device.arch() != Arch::sm_90a) GTEST_SKIP() << "no Hopper";
  }
};

TEST_F(AttentionFp8OnGpu, EveryInstanceMaskAndScaleWithinTheBound) {
  Stream stream(device);
  uint64_t seed = 1;
  for (const Fp8Case& s : fp8_cases()) expect_fp8(stream, s, ++seed);
}

TEST_F(AttentionFp8OnGpu, AMillionKeys) {
  Stream stream(device);
  expect_fp8(stream, million_fp8());
}

TEST_F(AttentionFp8OnGpu, RandomProblems) {
  std::mt19937_64 random(8);
  const auto upto = [&](int64_t n) { return static_cast<int64_t>(random() % uint64_t(n)); };
  const auto one_in = [&](int64_t n) { return upto(n) == 0; };
  Stream stream(device);
  for (uint64_t i = 0; i < 150; ++i) {
    Fp8Case s;
    s.sizes.batch = 1 + upto(2), s.sizes.kv_heads = 1 + upto(2);
    s.sizes.heads = s.sizes.kv_heads * (1 + upto(3));
    s.sizes.queries = 64 + upto(300), s.sizes.keys = 1 + upto(one_in(4) ? 3000 : 600);
    s.sizes.head_dim = 16 * (1 + upto(16)), s.sizes.value_dim = 16 * (1 + upto(16));
    s.causal = one_in(2), s.sinks = one_in(3);
    if (one_in(3)) s.left = upto(200);
    if (one_in(3)) s.right = upto(200);
    if (one_in(4)) s.chunk = 1 + upto(200);
    s.q = static_cast<Shared>(upto(5)), s.kv = static_cast<Shared>(upto(5));
    s.data = one_in(2) ? Data::normal : Data::outliers;
    SCOPED_TRACE("problem " + std::to_string(i));
    expect_fp8(stream, s, 100 + i);
    if (HasFailure()) break;
  }
}

TEST_F(AttentionFp8OnGpu, EveryRuleAndLayoutWithinTheBound) {
  Stream stream(device);
  for (const Case& c : fp8_layout_cases()) expect_fp8_layout(stream, c);
  expect_fp8_pages(stream);
  expect_fp8_packed(stream);
  expect_fp8_padding(stream);
}

TEST_F(AttentionFp8OnGpu, RunsAgainWithTheSameBits) {
  Stream stream(device);
  for (const Fp8Case& s : fp8_cases()) {
    Fp8Problem x = make_fp8(s, 7);
    run_on(stream, &x.c);
    const std::vector<float> first = to_floats(x.c.tensors.out);
    run_on(stream, &x.c);
    EXPECT_EQ(to_floats(x.c.tensors.out), first);
  }
}

}  // namespace
}  // namespace halftone::test

// The attention kernel of Hopper on the GPU.
#include <random>

#include "attention/sm90_cases.h"
#include "cuda/gpu.h"
#include "halftone/graph.h"

namespace halftone::test {
namespace {

class AttentionOnGpu : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped() && device.arch() != Arch::sm_90a) GTEST_SKIP() << "no Hopper";
  }
};

TEST_F(AttentionOnGpu, EveryInstanceAndMaskWithinTheBound) {
  Stream stream(device);
  uint64_t seed = 1;
  for (const Sm90Case& s : sm90_cases()) expect_case(stream, s, ++seed);
}

TEST_F(AttentionOnGpu, RandomProblems) {
  std::mt19937_64 random(20);
  const auto upto = [&](int64_t n) { return static_cast<int64_t>(random() % uint64_t(n)); };
  Stream stream(device);
  for (uint64_t i = 0; i < 200; ++i) {
    Sm90Case s;
    s.sizes.batch = 1 + upto(2);
    s.sizes.kv_heads = 1 + upto(2);
    s.sizes.heads = s.sizes.kv_heads * (1 + upto(3));
    s.sizes.queries = 1 + upto(400);
    s.sizes.keys = 1 + upto(500);
    s.sizes.head_dim = 8 * (1 + upto(32));
    s.sizes.value_dim = upto(2) == 0 ? s.sizes.head_dim : 8 * (1 + upto(32));
    s.format = upto(2) == 0 ? Format::bf16 : Format::f16;
    s.causal = upto(2) == 0;
    if (upto(3) == 0) s.left = upto(200);
    if (upto(3) == 0) s.right = upto(200);
    if (upto(4) == 0) s.chunk = 1 + upto(200);
    s.sinks = upto(3) == 0;
    SCOPED_TRACE("problem " + std::to_string(i));
    expect_case(stream, s, 100 + i);
    if (HasFailure()) break;
  }
}

// Runs again in a graph, and gives the same bits.
TEST_F(AttentionOnGpu, CapturedInAGraph) {
  Stream stream(device);
  Case c = make_case(Sm90Case{{2, 300, 400, 4, 2, 128}, Format::bf16, true}, 4);
  run_on(stream, &c);
  AttentionTensors t = on(device, c);
  const AttentionPlan again = plan(c.problem, device);
  run(again, t, stream);  // the maps are made
  const Graph graph = Graph::capture(stream, [&](Stream& s) { run(again, t, s); });
  for (int i = 0; i < 3; ++i) graph.replay(stream);
  stream.synchronize();
  EXPECT_EQ(to_floats(t.out.to(Device::cpu())), to_floats(c.tensors.out));
}

}  // namespace
}  // namespace halftone::test

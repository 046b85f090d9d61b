// Attention on sm_80 and later on the GPU. Results are in f32, which kernels of one architecture
// leave to this one.
#include <random>

#include "attention/sm80/cases.h"
#include "attention/token_scales.h"
#include "cuda/gpu.h"
#include "halftone/graph.h"

namespace halftone::test {
namespace {

class AttentionSm80OnGpu : public Gpu {};

TEST_F(AttentionSm80OnGpu, EveryModeRuleAndDimensionWithinTheBound) {
  Stream stream(device);
  for (const Case& c : sm80_cases()) expect_on(stream, c);
  for (const Case& c : sm80_orders()) expect_on(stream, c);
  for (const Case& c : token_cases()) expect_on(stream, c);
}

TEST_F(AttentionSm80OnGpu, RandomProblems) {
  std::mt19937_64 random(30);
  const auto upto = [&](int64_t n) { return static_cast<int64_t>(random() % uint64_t(n)); };
  const std::vector<AttentionMode> modes = attention_modes();
  Stream stream(device);
  for (uint64_t i = 0; i < 300; ++i) {
    Sizes s;
    s.batch = 1 + upto(2), s.kv_heads = 1 + upto(2), s.heads = s.kv_heads * (1 + upto(4));
    s.queries = upto(3) == 0 ? 2 : 2 + upto(199);
    s.keys = upto(3) == 0 ? 1 + upto(3000) : 1 + upto(300);
    s.head_dim = 32 * (1 + upto(8)), s.value_dim = 32 * (1 + upto(8));
    const AttentionMode mode = modes[static_cast<size_t>(upto(static_cast<int64_t>(modes.size())))];
    Case c = make_case(s, mode, 200 + i, upto(2) == 0 ? Data::normal : Data::outliers);
    AttentionProblem& p = c.problem;
    p.causal = upto(2) == 0;
    if (upto(3) == 0) p.window_left = upto(200);
    if (upto(3) == 0) p.window_right = upto(200);
    if (upto(4) == 0) p.attention_chunk_size = 1 + upto(200);
    if (upto(4) == 0) p.softcap = 20;
    if (upto(4) == 0) set_sinks(&c, random_tensor({p.heads}, Format::f32, i));
    if (upto(4) == 0) set_mask(&c, boolean_mask({1, 1, s.queries, s.keys}, i));
    SCOPED_TRACE("problem " + std::to_string(i));
    expect_on(stream, c);
    if (HasFailure()) break;
  }
}

TEST_F(AttentionSm80OnGpu, PagesGiveTheBitsOfContiguousKeys) {
  Stream stream(device);
  for (const AttentionMode& mode : attention_modes()) {
    for (const int64_t queries : {2, 150}) {
      Case c = make_case({2, queries, 1300, 4, 2, 128}, mode, 5);
      c.problem.causal = true;
      run_on(stream, &c);
      for (const int64_t page_size : {1, 16, 100}) {
        Case other = paged(c, page_size);
        run_on(stream, &other);
        expect_same(c, other);
      }
    }
  }
}

// Captured once, with lengths that change on the device afterwards.
TEST_F(AttentionSm80OnGpu, CapturedInAGraphWithLengthsOnTheDevice) {
  Stream stream(device);
  Case c = make_case({2, 2, 2000, 8, 2, 128}, {}, 4);
  c.problem.variable_length = true;
  c.tensors.seqused_k = i32({1, 1}, {2});
  const AttentionTensors t = on(device, c);
  const AttentionPlan decode = planned(c.problem, device);
  const Graph graph = Graph::capture(stream, [&](Stream& s) { run(decode, t, s); });
  for (const int32_t keys : {0, 5, 512, 1999}) {
    c.tensors.seqused_k = i32({keys, 2000 - keys}, {2});
    copy(c.tensors.seqused_k, t.seqused_k, stream);
    graph.replay(stream);
    stream.synchronize();
    run_on(stream, &c);
    EXPECT_EQ(to_floats(t.out.to(Device::cpu())), to_floats(c.tensors.out)) << keys;
  }
}

}  // namespace
}  // namespace halftone::test

// Decode attention on the GPU.
#include <random>

#include "attention/decode/decode_cases.h"
#include "attention/million_keys.h"
#include "cuda/gpu.h"
#include "halftone/graph.h"

namespace halftone::test {
namespace {

class AttentionDecodeOnGpu : public Gpu {};

TEST_F(AttentionDecodeOnGpu, EveryFormatRuleAndLengthWithinTheBound) {
  Stream stream(device);
  for (const Case& c : decode_cases()) expect_decode(stream, c);
}

TEST_F(AttentionDecodeOnGpu, AMillionKeys) {
  Stream stream(device);
  for (const DecodeFormats& f : kDecodeFormats) {
    Case c = needle_case({1, 1, kMillion, 4, 1, 64}, f.mode, f.q, f.kv, 5);
    expect_decode(stream, c);
    run_on(stream, &c);
    Case other = paged(c, 16);
    run_on(stream, &other);
    expect_same(c, other);
  }
}

TEST_F(AttentionDecodeOnGpu, RandomProblems) {
  std::mt19937_64 random(31);
  const auto upto = [&](int64_t n) { return static_cast<int64_t>(random() % uint64_t(n)); };
  Stream stream(device);
  for (uint64_t i = 0; i < 300; ++i) {
    Sizes s;
    s.batch = 1 + upto(3), s.kv_heads = 1 + upto(3), s.heads = s.kv_heads * (1 + upto(16));
    s.keys = upto(2) == 0 ? 1 + upto(3000) : 1 + upto(300);
    s.head_dim = 64 * (1 + upto(2));
    const DecodeFormats& f = kDecodeFormats[upto(5)];
    Case c = decode_case(s, f, 400 + i, upto(2) == 0 ? Data::normal : Data::outliers);
    AttentionProblem& p = c.problem;
    p.causal = upto(2) == 0;
    if (upto(3) == 0) p.window_left = upto(2000);
    if (upto(4) == 0) p.attention_chunk_size = 1 + upto(2000);
    if (upto(4) == 0) p.softcap = 20;
    if (upto(4) == 0) set_sinks(&c, random_tensor({p.heads}, Format::f32, i));
    if (upto(4) == 0) p.batch_invariant = true;
    SCOPED_TRACE("problem " + std::to_string(i));
    expect_decode(stream, c);
    if (HasFailure()) break;
    run_on(stream, &c);
    Case other = paged(c, 1 + upto(80));
    run_on(stream, &other);
    expect_same(c, other);
    if (HasFailure()) break;
  }
}

// Captured once, with lengths that change on the device afterwards.
TEST_F(AttentionDecodeOnGpu, CapturedInAGraphWithLengthsOnTheDevice) {
  Stream stream(device);
  for (const DecodeFormats& f : kDecodeFormats) {
    Case c = decode_case({2, 1, 2000, 8, 2, 128}, f, 4);
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
}

}  // namespace
}  // namespace halftone::test

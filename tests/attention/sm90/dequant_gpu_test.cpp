// Attention over quantised keys on the GPU.
#include <random>

#include "attention/sm90/dequant_cases.h"
#include "cuda/gpu.h"

namespace halftone::test {
namespace {

class AttentionDequantOnGpu : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped() && device.arch() != Arch::sm_90a) GTEST_SKIP() << "no Hopper";
  }
};

TEST_F(AttentionDequantOnGpu, EveryModeAndInstanceWithinTheBound) {
  Stream stream(device);
  for (const Case& c : dequant_cases()) expect_dequant(stream, c);
}

TEST_F(AttentionDequantOnGpu, RandomProblems) {
  std::mt19937_64 random(9);
  const auto upto = [&](int64_t n) { return static_cast<int64_t>(random() % uint64_t(n)); };
  const std::vector<AttentionMode> modes = dequant_modes();
  Stream stream(device);
  for (uint64_t i = 0; i < 150; ++i) {
    Sizes s;
    s.batch = 1 + upto(2), s.kv_heads = 1 + upto(2), s.heads = s.kv_heads * (1 + upto(3));
    s.queries = 64 + upto(200), s.keys = 1 + upto(upto(4) == 0 ? 2000 : 500);
    s.head_dim = 32 * (1 + upto(8)), s.value_dim = 32 * (1 + upto(8));
    const AttentionMode mode = modes[static_cast<size_t>(upto(static_cast<int64_t>(modes.size())))];
    // nvfp4 does not dequantise exactly to fp8.
    const bool narrow = mode.pv != Format::bf16 && mode.qk == Format::nvfp4;
    const Format codes = mode.pv == Format::nvfp4 ? mode.pv : narrow ? Format::mxfp8 : mode.qk;
    const Format q = upto(2) == 0 ? Format::bf16 : mode.qk, v = upto(2) == 0 ? mode.pv : codes;
    const bool by_row = upto(2) == 0;
    Case c = make_case(s, mode, q, mode.qk, v, 300 + i,
                       upto(2) == 0 ? Data::normal : Data::outliers, by_row);
    AttentionProblem& p = c.problem;
    p.out = Format::bf16;
    p.causal = upto(2) == 0;
    if (upto(3) == 0) p.window_left = upto(200);
    if (upto(4) == 0) p.attention_chunk_size = 1 + upto(200);
    if (upto(4) == 0) p.softcap = 20;
    if (upto(4) == 0) set_sinks(&c, random_tensor({p.heads}, Format::f32, i));
    SCOPED_TRACE("problem " + std::to_string(i));
    expect_dequant(stream, c);
    if (!by_row || upto(3) != 0) continue;
    // The form for any lengths; pages give its bits.
    p.variable_length = true;
    const auto all = static_cast<int32_t>(p.key_length);
    c.tensors.seqused_k = i32(std::vector<int32_t>(static_cast<size_t>(p.batch), all), {p.batch});
    expect_dequant(stream, c);
    run_on(stream, &c);
    Case other = paged(c, 1 + upto(100));
    run_on(stream, &other);
    expect_same(c, other);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace halftone::test

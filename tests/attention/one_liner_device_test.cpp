// attention() where Q, K and V lie on a GPU: operands of the CPU's bits, by the device's kernel.
#include "halftone/attention.h"
#include "halftone/hadamard.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::same_bits;

class AttentionOnDevice : public test::OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    q = test::random_tensor({1, 70, 2, 64}, Format::bf16, 1, test::Data::outliers);
    k = test::random_tensor({1, 150, 1, 64}, Format::bf16, 2, test::Data::outliers);
    v = test::random_tensor({1, 150, 1, 64}, Format::bf16, 3);
  }
  // Of operands that the CPU made, by hand.
  Tensor expected(const AttentionOptions& o, bool smooth) const {
    const AttentionMode mode = *o.mode;
    Stream s = stream();
    AttentionProblem p;
    p.batch = 1, p.query_length = 70, p.key_length = 150, p.heads = 2, p.kv_heads = 1;
    p.head_dim = 64, p.causal = o.causal, p.mode = mode, p.out = Format::bf16;
    const auto operand = [&](const Tensor& x, Format format) {
      const Tensor plain = o.hadamard ? hadamard(x) : x;
      return attention_operand(plain, format, Stream::default_stream(), o.scale_tokens).to(device);
    };
    AttentionTensors t;
    t.q = operand(q, mode.qk), t.k = operand(smooth ? smooth_keys(k) : k, mode.qk);
    t.v = attention_values(v, mode.pv, Stream::default_stream(), o.scale_tokens).to(device);
    t.out = Tensor::empty(q.shape(), Format::bf16, device);
    p.q = t.q.format(), p.k = t.k.format(), p.v = t.v.format();
    run(plan(p, device), t, s);
    s.synchronize();
    return t.out.to(Device::cpu());
  }
  void expect_same(const AttentionOptions& o, bool smooth = false) const {
    SCOPED_TRACE(to_string(*o.mode) + ", " + std::to_string(o.scale_tokens));
    Stream s = stream();
    const Tensor out = attention(q.to(device), k.to(device), v.to(device), o, s);
    s.synchronize();
    ASSERT_EQ(out.device(), device);
    EXPECT_TRUE(same_bits(out.to(Device::cpu()), expected(o, smooth)));
  }
  Tensor q, k, v;
};

TEST_P(AttentionOnDevice, EveryModeFromBf16) {
  for (const AttentionMode& mode : attention_modes()) {
    if (mode.qk == Format::f16 || mode.qk == Format::f32) continue;  // q would be converted
    AttentionOptions o;
    o.mode = mode, o.causal = true;
    expect_same(o, mode.qk == Format::int8);
  }
}

TEST_P(AttentionOnDevice, ScalesOfTokensSmoothedKeysAndTransforms) {
  for (const int64_t scale_tokens : {0, 128}) {
    AttentionOptions o;
    o.mode = AttentionMode{Format::fp8_e4m3, Format::fp8_e4m3};
    o.scale_tokens = scale_tokens;
    expect_same(o);
  }
  AttentionOptions o;
  o.mode = AttentionMode{Format::nvfp4, Format::bf16};
  o.hadamard = true;
  expect_same(o);
  o.hadamard = false, o.smooth_keys = true;
  expect_same(o, true);
}

TEST_P(AttentionOnDevice, KeysLessTheirMean) {
  Stream s = stream();
  Tensor mean, expected_mean;
  const Tensor smooth = smooth_keys(k.to(device), &mean, s);
  s.synchronize();
  EXPECT_TRUE(same_bits(smooth.to(Device::cpu()), smooth_keys(k, &expected_mean)));
  EXPECT_TRUE(same_bits(mean.to(Device::cpu()), expected_mean));
  EXPECT_EQ(smooth_keys(Tensor::empty({0, 2, 64}, Format::bf16, device), &mean, s).numel(), 0);
}

HALFTONE_ON_DEVICES(AttentionOnDevice);

}  // namespace
}  // namespace halftone

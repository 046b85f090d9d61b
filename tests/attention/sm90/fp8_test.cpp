// E4M3 attention on the simulated sm_90a.
#include "attention/sm90/fp8_cases.h"
#include "attention/sm90/simulated.h"
#include "attention/token_scales.h"
#include "ops/attention/sm90/launch.h"

namespace halftone::test {
namespace {

TEST(AttentionSm90Fp8, EveryInstanceMaskAndScaleWithinTheBound) {
  Stream stream = hopper();
  uint64_t seed = 1;
  for (const Fp8Case& s : fp8_cases()) {
    ++seed;
#if defined(HALFTONE_SANITIZED)
    if (seed % 4 != 0) continue;
#endif
    expect_fp8(stream, s, seed);
  }
}

// Blocks of 128 tokens quantised on the device are the CPU's, to the bit of the result.
TEST(AttentionSm90Fp8, OperandsMadeOnTheDeviceGiveTheSameBits) {
  Stream stream = hopper();
  Case c = token_case({2, 140, 300, 2, 1, 64}, {Format::fp8_e4m3, Format::fp8_e4m3}, 4);
  c.problem.out = Format::bf16;
  EXPECT_EQ(attention_sm90_fp8_error(c.problem), "");
  run_on(stream, &c);
  AttentionTensors t = on(stream.device(), c);
  uint64_t which = 0;
  for (Tensor* each : {&t.q, &t.k, &t.v}) {
    const Tensor x = random_tensor(each->shape(), Format::f32, 40 + ++which, Data::outliers);
    *each = attention_operand(x.to(stream.device()), Format::fp8_e4m3, stream, 128);
  }
  run(planned(c.problem, stream.device()), t, stream);
  EXPECT_EQ(to_floats(t.out.to(Device::cpu())), to_floats(c.tensors.out));
}

// The bounds would notice one key too many, one scale of another head and one column for another.
TEST(AttentionSm90Fp8, SmallErrorsBreakTheBound) {
  Stream stream = hopper();
  const Fp8Case good{{1, 70, 64, 2, 2, 64}, true};
  const Bounded reference = bounded(make_fp8(good, 3));
  const auto fits = [&](Fp8Problem x) {
    run_on(stream, &x.c);
    return within(to_floats(x.c.tensors.out), reference.out, reference.out_bound);
  };
  EXPECT_TRUE(fits(make_fp8(good, 3)));
  Fp8Case wider = good;
  wider.causal = false, wider.right = 1;
  EXPECT_FALSE(fits(make_fp8(wider, 3)));
  Fp8Problem scaled = make_fp8(good, 3);
  float* scales = const_cast<float*>(std::as_const(scaled.v.tensor).scales().data<float>());
  scales[1] *= 2;
  EXPECT_FALSE(fits(scaled));
  Fp8Problem swapped = make_fp8(good, 3);
  for (int64_t row = 0; row < 128; ++row) {
    uint8_t* codes = swapped.c.tensors.v.data<uint8_t>() + row * 64;
    std::swap(codes[4], codes[5]);
  }
  EXPECT_FALSE(fits(swapped));
}

// No race, missing fence or bank conflict under any schedule; and the same bits.
TEST(AttentionSm90Fp8, StrictUnderAdversarialSchedules) {
  // Three tiles of keys, so that every stage is used again.
  for (const Fp8Case& s :
       {Fp8Case{{1, 200, 390, 1, 1, 64}, true}, Fp8Case{{1, 130, 520, 1, 1, 128}, true},
        Fp8Case{{1, 129, 460, 1, 1, 128}, true, -1, -1, 0, false, Shared::row, Shared::row},
        Fp8Case{{1, 65, 460, 1, 1, 128}, true, -1, -1, 0, false, Shared::row, Shared::block},
        Fp8Case{{1, 65, 520, 1, 1, 128}, false, -1, -1, 0, false, Shared::block, Shared::block},
        Fp8Case{{1, 65, 390, 1, 1, 64}, false, -1, -1, 0, false, Shared::block, Shared::block},
        Fp8Case{{1, 65, 390, 1, 1, 256}, true, -1, -1, 0, false, Shared::block, Shared::block},
        Fp8Case{{1, 130, 390, 1, 1, 256}}}) {
    expect_strict_in_any_order([&](Stream& stream) {
      Fp8Problem x = make_fp8(s, 5);
      run_on(stream, &x.c);
      return to_floats(x.c.tensors.out);
    });
  }
}

// Sums of 13 fraction bits are of one tile alone: sixteen times the keys cost no precision.
TEST(AttentionSm90Fp8, TheErrorDoesNotGrowWithTheLength) {
  Stream stream = hopper();
  const auto error = [&](int64_t keys) {
    Fp8Problem x = make_fp8({{1, 64, keys, 1, 1, 64}}, 9);
    const std::vector<float> exact = to_floats(attention_reference(x.c.problem, x.c.tensors));
    run_on(stream, &x.c);
    return compare(to_floats(x.c.tensors.out), exact).relative_l2;
  };
  const double few = error(512), many = error(8192);
  RecordProperty("relative_l2_of_512_keys", std::to_string(few));
  RecordProperty("relative_l2_of_8192_keys", std::to_string(many));
  EXPECT_LT(few, 0.05);
  EXPECT_LT(many, 1.2 * few);
}

TEST(AttentionSm90Fp8, RefusesWithTheReason) {
  const auto reason = [&](auto change) {
    AttentionProblem p = make_fp8({{1, 64, 64, 1, 1, 64}}, 1).c.problem;
    change(p);
    return attention_sm90_fp8_error(p);
  };
  EXPECT_EQ(reason([](AttentionProblem&) {}), "");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.head_dim = 40; }), "");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.head_dim = 300; }),
            "head_dim is 300 and value_dim 64; attention_sm90_fp8 takes up to 256");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.query_length = 63; }),
            "query_length is 63; attention_sm90_fp8 takes 64 and more");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.out = Format::f32; }),
            "out is f32; attention_sm90_fp8 takes bf16");
}

}  // namespace
}  // namespace halftone::test

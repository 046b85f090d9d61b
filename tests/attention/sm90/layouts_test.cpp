// The general form of attention on sm_90a on the simulated GPU: lengths, pages, strides, masks,
// splits.
#include "attention/sm90/layouts.h"
#include "attention/sm90/simulated.h"
#include "support/sanitized.h"

namespace halftone::test {
namespace {

TEST(AttentionSm90Layouts, EveryFeatureWithinTheBound) {
  Stream stream = hopper();
  uint64_t seed = 1;
  for (const LayoutCase& l : layout_cases()) {
    ++seed;
#if defined(HALFTONE_SANITIZED)
    if (seed % 3 != 0) continue;
#endif
    SCOPED_TRACE("case " + std::to_string(seed - 2));
    expect_layout(stream, l, seed);
  }
}

TEST(AttentionSm90Layouts, RandomProblemsWithinTheBound) {
  Stream stream = hopper();
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("problem " + std::to_string(seed));
    expect_layout(stream, random_layout(seed, 130, 300), seed);
    if (HasFailure()) break;
  }
}

// The bounds would notice a mask that one key does not obey.
TEST(AttentionSm90Layouts, AMaskedKeyThatCountsBreaksTheBound) {
  Stream stream = hopper();
  LayoutCase l{Sm90Case{{1, 3, 40, 1, 1, 64}}};
  l.mask = Format::u8;
  const LaidOut right(l, 3);
  LaidOut wrong(l, 3);
  uint8_t* mask = wrong.whole.tensors.mask.data<uint8_t>();
  *std::find(mask, mask + 120, uint8_t{0}) = 1;
  AttentionTensors t = wrong.on(stream.device());
  run(planned(wrong.whole.problem, stream.device()), t, stream);
  const Bounded reference = bounded(right.sequence(0));
  const std::vector<float> out = to_floats(wrong.out().contiguous_copy());
  EXPECT_FALSE(within(out, reference.out, reference.out_bound));
}

// Four scores share a reciprocal under a softcap: a NaN reaches the rows to which its key is
// visible, and an infinite score is the cap; the bits of all others stay.
TEST(AttentionSm90Layouts, ACapKeepsNansApart) {
  Stream stream = hopper();
  LayoutCase l{Sm90Case{{1, 66, 66, 1, 1, 64}, Format::bf16, true}};
  l.softcap = 3;
  constexpr int64_t kKey = 37;
  LaidOut laid(l, 4);
  const auto run_with = [&](uint16_t code) {
    const Tensor& k = laid.whole.tensors.k;
    const Tensor before = k.contiguous_copy();
    // Every query meets a NaN, or an infinity, there.
    if (code != 0) std::fill_n(k.data<uint16_t>() + kKey * 64, 1, code);
    AttentionTensors t = laid.on(stream.device());
    run(planned(laid.whole.problem, stream.device()), t, stream);
    std::copy_n(before.data<uint16_t>(), before.numel(), k.data<uint16_t>());
    return to_floats(t.lse.to(Device::cpu()));
  };
  const std::vector<float> right = run_with(0), nan = run_with(0x7fc0), infinite = run_with(0x7f80);
  for (size_t i = 0; i < right.size(); ++i) {
    if (i < kKey) {
      EXPECT_EQ(nan[i], right[i]) << i;
      EXPECT_EQ(infinite[i], right[i]) << i;
    } else {
      EXPECT_TRUE(std::isnan(nan[i])) << i;
      EXPECT_TRUE(std::isfinite(infinite[i])) << i;
    }
  }
}

// No race, missing fence or bank conflict under any schedule; and the same bits.
TEST(AttentionSm90Layouts, StrictUnderAdversarialSchedules) {
  const LayoutCase cases[] = {
      {Sm90Case{{2, 20, 200, 2, 1, 64}, Format::bf16, true}, {20, 9}, {200, 70}, Keys::packed},
      {Sm90Case{{1, 66, 140, 1, 1, 64}, Format::bf16, true}, {}, {}, Keys::paged, 16},
      {Sm90Case{{1, 2, 150, 2, 1, 64}}, {}, {}, Keys::paged, 7, 1, Format::u8},
      {Sm90Case{{1, 2, 1030, 2, 1, 64}}},
      {Sm90Case{{2, 130, 272, 2, 1, 64}}, {}, {}, Keys::padded, 16, 0, Format::bf16},
      {Sm90Case{{1, 70, 264, 2, 2, 128}, Format::f16, true},
       {},
       {},
       Keys::padded,
       16,
       0,
       Format::f32},
      {Sm90Case{{1, 66, 144, 1, 1, 256}}, {}, {}, Keys::paged, 7, 0, Format::u8},
  };
  for (const LayoutCase& l : cases) {
    LaidOut laid(l, 7);
    const AttentionPlan made = planned(laid.whole.problem, Device::simulator(Arch::sm_90a));
    SCOPED_TRACE(describe(made));
    expect_strict_in_any_order([&](Stream& stream) {
      AttentionTensors t = laid.on(stream.device());
      run(made, t, stream);
      return to_floats(t.lse.to(Device::cpu()));
    });
  }
}

// More tiles than CTAs: the dynamic schedule's counter hands them out, and is 0 again for the next
// run. The lengths differ, and so who gets what; the bits do not.
TEST(AttentionSm90Layouts, DynamicScheduleGivesTheSameBits) {
  LayoutCase l{Sm90Case{{71, 2, 40, 2, 2, 64}, Format::bf16, true}};
  for (int64_t b = 0; b < 71; ++b) l.queries.push_back(b % 3), l.keys.push_back(b * 7 % 41);
  LaidOut laid(l, 11);
  std::vector<float> first;
  for (uint64_t seed = 1; seed <= (kSanitized ? 1 : 3); ++seed) {
    Stream stream = hopper({.severity = SimulatorOptions::Severity::strict,
                            .numerics = SimulatorOptions::Numerics::fast,
                            .schedule = SimulatorOptions::Schedule::adversarial,
                            .seed = seed});
    expect_layout(stream, l, 11);
    AttentionTensors t = laid.on(stream.device());
    const AttentionPlan made = planned(laid.whole.problem, stream.device());
    for (int run_again = 0; run_again < 2; ++run_again) {
      run(made, t, stream);
      const std::vector<float> values = to_floats(laid.out().contiguous_copy());
      if (first.empty()) first = values;
      ASSERT_EQ(values, first) << "seed " << seed;
    }
  }
}

// With batch_invariant a row has the same bits alone and in a batch, whose splits would be others.
TEST(AttentionSm90Layouts, SplitsDoNotKnowTheBatch) {
  Stream stream = hopper();
  LayoutCase l{Sm90Case{{2, 2, 2300, 1, 1, 64}}};
  l.batch_invariant = true;
  LaidOut both(l, 9);
  AttentionTensors t = both.on(stream.device());
  run(planned(both.whole.problem, stream.device()), t, stream);
  Case alone = both.sequence(1);
  alone.problem.lse = true;
  run_on(stream, &alone);
  EXPECT_EQ(to_floats(alone.tensors.out), to_floats(both.out().slice(0, 1, 2).contiguous_copy()));
}

TEST(AttentionSm90Layouts, MoreKeysThanTheTensorHasAreAnError) {
  Stream stream = hopper();
  for (const Keys layout : {Keys::padded, Keys::paged}) {
    LayoutCase l{Sm90Case{{1, 5, 60, 1, 1, 64}}};
    l.layout = layout;
    LaidOut laid(l, 4);
    AttentionTensors t = laid.on(stream.device());
    AttentionProblem p = laid.whole.problem;
    p.key_length = 100;
    EXPECT_THROW(run(planned(p, stream.device()), t, stream), Error);
  }
}

// Lengths that the host has not checked: nothing outside the tensors is read or written.
TEST(AttentionSm90Layouts, WrongLengthsStayInsideTheTensors) {
  Stream stream = hopper();
  LayoutCase l{Sm90Case{{2, 5, 60, 1, 1, 64}}, {5, 3}, {60, 20}, Keys::packed};
  LaidOut laid(l, 4);
  AttentionTensors t = laid.on(stream.device());
  const AttentionPlan made = planned(laid.whole.problem, stream.device());
  t.cu_seqlens_q = i32({3, 1000000, -7}).to(stream.device());
  t.cu_seqlens_k = i32({-2000000000, 2000000000, 50}).to(stream.device());
  t.seqused_k = i32({2147483647, -1}).to(stream.device());
  run(made, t, stream);
  LayoutCase pages{Sm90Case{{1, 5, 200, 1, 1, 64}}, {}, {}, Keys::paged, 16};
  LaidOut paged(pages, 4);
  t = paged.on(stream.device());
  std::vector<int32_t> table(13, 1 << 30);
  t.page_table = Tensor::from<int32_t>(table, {1, 13}, Format::i32).to(stream.device());
  run(planned(paged.whole.problem, stream.device()), t, stream);
  // Pages that do not exist are zeros: the mean of nothing but them.
  for (const float x : to_floats(paged.out().contiguous_copy())) EXPECT_EQ(x, 0);
}

}  // namespace
}  // namespace halftone::test

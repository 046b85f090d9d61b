// The BF16/FP16 attention kernel of sm_90a on the simulated GPU.
#include "attention/sm90/cases.h"
#include "attention/sm90/simulated.h"
#include "ops/attention/sm90/launch.h"

namespace halftone::test {
namespace {

TEST(AttentionSm90, EveryInstanceAndMaskWithinTheBound) {
  Stream stream = hopper();
  uint64_t seed = 1;
  for (const Sm90Case& s : sm90_cases()) {
    ++seed;
#if defined(HALFTONE_SANITIZED)
    if (seed % 3 != 0) continue;
#endif
    expect_case(stream, s, seed);
  }
}

// The bounds would notice one key too many.
TEST(AttentionSm90, AKeyTooManyBreaksTheBound) {
  Stream stream = hopper();
  const Sm90Case good{{1, 40, 64, 1, 1, 64}, Format::bf16, true};
  Sm90Case wrong = good;
  wrong.causal = false, wrong.right = 1;
  Case c = make_case(wrong, 3);
  run_on(stream, &c);
  const Bounded reference = bounded(make_case(good, 3));
  EXPECT_FALSE(within(to_floats(c.tensors.out), reference.out, reference.out_bound));
  EXPECT_FALSE(within(to_floats(c.tensors.lse), reference.lse, reference.lse_bound));
}

// No race, missing fence or bank conflict under any schedule; and the same bits.
TEST(AttentionSm90, StrictUnderAdversarialSchedules) {
  for (const Sm90Case& s :
       {Sm90Case{{1, 200, 250, 1, 1, 64}, Format::bf16, true}, Sm90Case{{1, 200, 250, 1, 1, 64}},
        Sm90Case{{1, 257, 330, 1, 1, 128}}, Sm90Case{{1, 130, 170, 1, 1, 256}},
        Sm90Case{{1, 150, 200, 1, 1, 96}, Format::bf16, true}, Sm90Case{{1, 2048, 230, 1, 1, 96}},
        Sm90Case{{1, 150, 240, 1, 1, 192}}}) {
    expect_strict_in_any_order([&](Stream& stream) {
      Case c = make_case(s, 5);
      run_on(stream, &c);
      return to_floats(c.tensors.out);
    });
  }
}

// Tiles of 96 and 192 leave out the products of the zeros behind a row.
TEST(AttentionSm90, TilesOf96And192SkipThePadding) {
  for (const Sizes& s :
       {Sizes{1, 128, 128, 1, 1, 96}, {1, 2112, 112, 1, 1, 96}, {1, 128, 112, 1, 1, 192}}) {
    Stream stream = hopper();
    Case c = make_case(Sm90Case{s}, 3);
    run_on(stream, &c);
    int64_t products = 0;
    for (const auto& count : simulator_report(stream).counters.multiply_adds) {
      products += static_cast<int64_t>(count.count);
    }
    EXPECT_EQ(products, 2 * s.queries * s.keys * s.head_dim) << s.head_dim;
  }
}

// A row's bits are a function of its query and keys: not of the rows, heads and sequences beside
// it.
TEST(AttentionSm90, RowsDoNotKnowTheBatch) {
  Stream stream = hopper();
  Case whole = make_case(Sm90Case{{2, 150, 200, 2, 1, 128}, Format::bf16, true}, 9);
  run_on(stream, &whole);
  // The last 22 rows of the second sequence's second head, alone.
  const auto part = [](const Tensor& t, int64_t row, int64_t rows, int64_t head) {
    return t.slice(0, 1, 2).slice(1, row, row + rows).slice(2, head, head + 1).contiguous_copy();
  };
  Case alone = make_case(Sm90Case{{1, 22, 200, 1, 1, 128}, Format::bf16, true}, 9);
  alone.tensors.q = part(whole.tensors.q, 128, 22, 1);
  alone.tensors.k = part(whole.tensors.k, 0, 200, 0);
  alone.tensors.v = part(whole.tensors.v, 0, 200, 0);
  run_on(stream, &alone);
  EXPECT_EQ(to_floats(alone.tensors.out), to_floats(part(whole.tensors.out, 128, 22, 1)));
}

TEST(AttentionSm90, RefusesWithTheReason) {
  const auto reason = [&](auto change) {
    AttentionProblem p = make_case(Sm90Case{{1, 64, 64, 1, 1, 64}}, 1).problem;
    change(p);
    return attention_sm90_error(p);
  };
  EXPECT_EQ(reason([](AttentionProblem&) {}), "");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.head_dim = 512; }),
            "head_dim is 512 and value_dim 64; attention_sm90 takes up to 256");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.out = Format::f32; }),
            "out is f32; attention_sm90 takes that of the mode, bf16");
}

}  // namespace
}  // namespace halftone::test

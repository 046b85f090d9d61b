// Attention over quantised keys on the simulated Hopper.
#include "attention/sm90_expand_cases.h"
#include "attention/sm90_simulated.h"
#include "ops/attention/sm90.h"

namespace halftone::test {
namespace {

TEST(AttentionSm90Expand, EveryModeAndInstanceWithinTheBound) {
  Stream stream = hopper();
  uint64_t number = 0;
  for (const Case& c : expanding_cases()) {
    ++number;
#if defined(HALFTONE_SANITIZED)
    if (number % 5 != 0) continue;
#endif
    EXPECT_EQ(attention_sm90_expand_error(c.problem), "");
    expect_on(stream, c);
  }
}

// Pages and lengths, by the same loaders: the bits of the keys side by side.
TEST(AttentionSm90Expand, PagesGiveTheBitsOfOneRun) {
  Stream stream = hopper();
  for (const AttentionMode& mode : expanding_modes()) {
    Case c = make_case({2, 66, 150, 2, 1, 128}, mode, 5);
    c.problem.causal = true, c.problem.out = Format::bf16;
    run_on(stream, &c);
    for (const int64_t page_size : {16, 100}) {
      Case other = paged(c, page_size);
      run_on(stream, &other);
      expect_same(c, other);
    }
  }
}

// The bound would notice a block scale of another block.
TEST(AttentionSm90Expand, AWrongScaleBreaksTheBound) {
  Stream stream = hopper();
  Case c = make_case({1, 64, 70, 1, 1, 64}, {Format::mxfp8, Format::bf16}, 3);
  c.problem.out = Format::bf16;
  const Bounded reference = bounded(c);
  auto* scales = const_cast<uint8_t*>(std::as_const(c.tensors.k).scales().data<uint8_t>());
  scales[3] += 1;
  run_on(stream, &c);
  EXPECT_FALSE(within(to_floats(c.tensors.out), reference.out, reference.out_bound));
}

TEST(AttentionSm90Expand, StrictUnderAdversarialSchedules) {
  for (const AttentionMode& mode : {AttentionMode{Format::fp8_e4m3, Format::bf16},
                                    AttentionMode{Format::nvfp4, Format::bf16}}) {
    expect_strict_in_any_order([&](Stream& stream) {
      Case c = make_case({1, 130, 390, 1, 1, 128}, mode, mode.qk, mode.qk, mode.qk, 5);
      c.problem.causal = true, c.problem.out = Format::bf16;
      run_on(stream, &c);
      return to_floats(c.tensors.out);
    });
  }
}

TEST(AttentionSm90Expand, RefusesWithTheReason) {
  const auto reason = [&](auto change) {
    AttentionProblem p = make_case({1, 64, 64, 1, 1, 64}, {Format::nvfp4, Format::bf16}).problem;
    p.out = Format::bf16;
    change(p);
    return attention_sm90_expand_error(p);
  };
  EXPECT_EQ(reason([](AttentionProblem&) {}), "");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.query_length = 8; }),
            "query_length is 8; attention_sm90_expand takes 64 and more");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.mask = Format::u8; }),
            "mask is given; attention_sm90_expand takes no mask tensor");
}

}  // namespace
}  // namespace halftone::test

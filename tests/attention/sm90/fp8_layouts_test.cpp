// The general form of E4M3 attention on the simulated sm_90a.
#include "attention/sm90/fp8_layouts.h"

#include "attention/sm90/simulated.h"

namespace halftone::test {
namespace {

TEST(AttentionSm90Fp8Layouts, EveryRuleInstanceAndScaleWithinTheBound) {
  Stream stream = hopper();
  size_t number = 0;
  for (const Case& c : fp8_layout_cases()) {
    ++number;
#if defined(HALFTONE_SANITIZED)
    if (number % 4 != 0) continue;
#endif
    SCOPED_TRACE("case " + std::to_string(number - 1));
    expect_fp8_layout(stream, c);
  }
}

TEST(AttentionSm90Fp8Layouts, PagesGiveTheBitsOfContiguousKeys) {
  Stream stream = hopper();
  expect_fp8_pages(stream);
}

TEST(AttentionSm90Fp8Layouts, PackedAndPaddedSequencesWithinTheBound) {
  Stream stream = hopper();
  expect_fp8_packed(stream);
  expect_fp8_padding(stream);
}

// The bound would notice masked keys that count for one row, and a scale of another key.
TEST(AttentionSm90Fp8Layouts, SmallErrorsBreakTheBound) {
  Stream stream = hopper();
  Case good = fp8_layout_case({1, 64, 40, 1, 1, 64}, 3);
  set_mask(&good, boolean_mask({1, 1, 64, 40}, 4));
  const Bounded reference = bounded_fp8(good);
  const auto fits = [&](Case c) {
    run_on(stream, &c);
    return within(to_floats(c.tensors.out), reference.out, reference.out_bound);
  };
  EXPECT_TRUE(fits(good));
  Case shown = good;
  shown.tensors.mask = good.tensors.mask.contiguous_copy();
  uint8_t* mask = shown.tensors.mask.data<uint8_t>();
  std::fill(mask + 63 * 40, mask + 64 * 40, uint8_t{1});  // of the last row
  EXPECT_FALSE(fits(shown));
  Case scaled = paged(good, 16);
  EXPECT_TRUE(fits(scaled));
  scaled.tensors.v.scales().data<float>()[17] *= 2;
  EXPECT_FALSE(fits(scaled));
}

// No race, missing fence or bank conflict under any schedule; and the same bits.
TEST(AttentionSm90Fp8Layouts, StrictUnderAdversarialSchedules) {
  Case masked = fp8_layout_case({1, 65, 200, 4, 2, 64}, 8);
  kRules[4].set(masked);
  const Case cases[] = {paged(fp8_layout_case({1, 130, 270, 1, 1, 128}, 7), 16),
                        paged(fp8_layout_case({1, 64, 140, 1, 1, 256}, 7, false), 7), masked,
                        fp8_layout_case({1, 64, 100, 1, 1, 41, 39}, 9)};
  for (const Case& original : cases) {
    expect_strict_in_any_order([&](Stream& stream) {
      Case c = original;
      run_on(stream, &c);
      return to_floats(c.tensors.out);
    });
  }
}

}  // namespace
}  // namespace halftone::test

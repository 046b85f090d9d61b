// Attention on sm_80 and later on simulated GPUs: masks, formats, dimensions, orders.
#include "attention/sm80/cases.h"
#include "attention/token_scales.h"

namespace halftone::test {
namespace {

using Options = SimulatorOptions;

Stream chip(Arch arch = Arch::sm_80, Options options = {}) {
  Stream stream(Device::simulator(arch));
  configure(stream, options);
  return stream;
}

TEST(AttentionSm80, EveryModeRuleAndDimensionWithinTheBound) {
  Stream stream = chip();
  for (const Case& c : sm80_cases()) expect_on(stream, c);
}

TEST(AttentionSm80, ScalesOfBlocksOfTokensWithinTheBound) {
  Stream stream = chip();
  for (const Case& c : token_cases()) expect_on(stream, c);
}

// The rules of the tensor cores differ between the architectures, the kernel does not.
TEST(AttentionSm80, EveryArchitecture) {
  for (const Arch arch : {Arch::sm_89, Arch::sm_90a, Arch::sm_100a, Arch::sm_120a}) {
    Stream stream = chip(arch);
    for (const AttentionMode& mode : attention_modes()) {
      Case c = make_case({1, 9, 90, 2, 1, 64}, mode, 3);
      c.problem.causal = true;
      c.problem.softcap = 20;
      expect_on(stream, c);
    }
  }
}

// A wrong scale, a key too many, another mask: each leaves the bound.
TEST(AttentionSm80, SmallErrorsBreakTheBound) {
  Stream stream = chip();
  for (const AttentionMode& mode : attention_modes()) {
    SCOPED_TRACE(to_string(mode));
    Case good = make_case({1, 5, 6, 2, 1, 64}, mode, 4);
    good.problem.causal = true;
    const Bounded reference = bounded(good);
    const auto breaks = [&](const std::function<void(Case&)>& change) {
      Case wrong = good;
      change(wrong);
      run_on(stream, &wrong);
      EXPECT_FALSE(within(to_floats(wrong.tensors.out), reference.out, reference.out_bound));
      EXPECT_FALSE(within(to_floats(wrong.tensors.lse), reference.lse, reference.lse_bound));
    };
    breaks([](Case& c) { c.problem.causal = false, c.problem.window_right = 1; });
    breaks([](Case& c) { c.problem.softmax_scale = 0.25f; });
    breaks([](Case& c) { set_sinks(&c, Tensor::from({1, 1}, {2})); });
  }
}

// No race, missing wait or bank conflict under any schedule; and the same bits.
TEST(AttentionSm80, StrictUnderAdversarialSchedules) {
#if defined(HALFTONE_SANITIZED)
  constexpr uint64_t kSeeds = 2;
#else
  constexpr uint64_t kSeeds = 20;
#endif
  for (const Arch arch : {Arch::sm_80, Arch::sm_90a}) {
    for (const Case& c : sm80_orders()) {
      SCOPED_TRACE(to_string(c.problem.mode));
      std::vector<float> first;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        Stream stream = chip(arch, {.severity = Options::Severity::strict,
                                    .numerics = Options::Numerics::fast,
                                    .schedule = Options::Schedule::adversarial,
                                    .seed = seed,
                                    .throws = false});
        Case run = c;
        run_on(stream, &run);
        const SimulatorReport report = simulator_report(stream);
        ASSERT_TRUE(report.clean()) << "seed " << seed << "\n" << to_string(report);
        EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal)
            << to_string(report);
        const std::vector<float> values = to_floats(run.tensors.out);
        if (first.empty()) first = values;
        ASSERT_EQ(values, first) << "seed " << seed;
      }
    }
  }
}

// A row's bits are a function of its query and keys: not of the rows, heads and sequences beside
// it.
TEST(AttentionSm80, RowsDoNotKnowTheBatch) {
  Stream stream = chip();
  for (const AttentionMode& mode : {AttentionMode{}, AttentionMode{Format::f32, Format::f32},
                                    AttentionMode{Format::nvfp4, Format::nvfp4}}) {
    Case whole = make_case({2, 150, 200, 2, 1, 128}, mode, Format::f32, mode.qk, mode.pv, 9);
    whole.problem.causal = true;
    run_on(stream, &whole);
    // The last 70 rows of the second sequence's second head, alone.
    Case alone = whole;
    AttentionProblem& p = alone.problem;
    p.batch = p.heads = 1, p.query_length = 70;
    const auto part = [](const Tensor& t, int64_t row, int64_t head) {
      return t.slice(0, 1, 2).slice(1, row, t.size(1)).slice(2, head, head + 1);
    };
    alone.tensors.q = part(whole.tensors.q, 80, 1).contiguous_copy();
    for (Tensor* t : {&alone.tensors.k, &alone.tensors.v}) {
      *t = rearrange(*t, 1, 200, [] {
        std::vector<int64_t> rows(200);
        std::iota(rows.begin(), rows.end(), 200);
        return rows;
      }());
    }
    run_on(stream, &alone);
    EXPECT_EQ(to_floats(alone.tensors.out), to_floats(part(whole.tensors.out, 80, 1)));
  }
}

TEST(AttentionSm80, RefusesWithTheReason) {
  const Device device = Device::simulator(Arch::sm_120a);
  const auto reason = [&](auto change) {
    AttentionProblem p = make_case({1, 64, 64, 1, 1, 64}, {}, 1).problem;
    change(p);
    return can_run(p, device).reason;
  };
  EXPECT_EQ(reason([](AttentionProblem&) {}), "");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.head_dim = 257; }),
            "head_dim is 257; attention_sm80 takes up to 256");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.value_dim = 512; }),
            "value_dim is 512; attention_sm80 takes up to 256");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.key_length = int64_t{1} << 31; }),
            "query_length is 64, key_length 2147483648 and page_size 0; attention_sm80 takes up to "
            "1073741824");
}

}  // namespace
}  // namespace halftone::test

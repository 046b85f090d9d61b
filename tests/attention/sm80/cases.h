// Problems for attention on sm_80 and later, on a GPU or a simulated one.
#pragma once
#include <utility>

#include "attention/attention_layouts.h"
#include "attention/attention_rules.h"
#include "attention/run_on.h"

namespace halftone::test {

// Every mode, every rule, every format of Q and of a cache, dimensions and lengths around the edges
// of tiles.
inline std::vector<Case> sm80_cases() {
  std::vector<Case> cases;
  for (const AttentionMode& mode : attention_modes()) {
    for (const Rule& rule : kRules) {
      cases.push_back(make_case({1, 19, 150, 4, 2, 32}, mode, 40));
      rule.set(cases.back());
    }
    cases.push_back(make_case({1, 37, 300, 4, 2, 64}, mode, 1, Data::outliers));
    cases.back().problem.causal = true;
  }
  const auto add = [&](const Case& c, bool causal = false, int64_t left = -1, int64_t right = -1) {
    cases.push_back(c);
    AttentionProblem& p = cases.back().problem;
    p.causal = causal, p.window_left = left, p.window_right = right;
  };
  for (const Format format : {Format::bf16, Format::f16, Format::f32}) {
    const AttentionMode mode{format, format};
    add(make_case({2, 65, 64, 1, 1, 64}, mode, 2), true);  // rows without keys
    add(make_case({1, 64, 65, 3, 3, 41, 17}, mode, 3), true, 20);
    add(make_case({1, 1, 63, 8, 1, 96}, mode, 4));
    add(make_case({1, 50, 130, 2, 1, 96, 128}, mode, 5), false, 30, 10);
    add(make_case({1, 33, 70, 2, 1, 192, 128}, mode, 6), true);
    add(make_case({1, 20, 33, 1, 1, 256}, mode, 7), true);
    cases.back().problem.out = format;
    cases.back().problem.softmax_scale = -0.1f;
  }
  for (const Format q : {Format::f32, Format::f16, Format::bf16}) {
    for (const Format kv : {Format::bf16, Format::fp8_e4m3, Format::nvfp4, Format::mxfp8,
                            Format::mxfp6, Format::mxfp6_e3m2, Format::mxfp4, Format::int8}) {
      const AttentionMode mode{kv, Format::bf16};
      add(make_case({1, 3, 70, 8, 2, 96}, mode, q, kv, kv, 8));
      add(make_case({1, 3, 20, 2, 1, 32}, mode, q, kv, kv, 9, Data::normal, false), true);
    }
    for (const Format kv : {Format::f16, Format::bf16, Format::nvfp4, Format::int8}) {
      add(make_case({1, 2, 70, 2, 2, 48}, {Format::f32, Format::f32}, q, kv, kv, 10), true);
    }
    add(make_case({1, 2, 70, 2, 2, 64}, {Format::f16, Format::f16}, q, Format::mxfp8, Format::f16));
  }
  return cases;
}

// Formats and alignments that are loaded in other ways.
inline std::vector<Case> sm80_orders() {
  const AttentionMode nvfp4{Format::nvfp4, Format::nvfp4}, f32{Format::f32, Format::f32};
  std::vector<Case> cases = {
      make_case({1, 70, 90, 1, 1, 64}, {}, 5),
      make_case({1, 4, 700, 2, 1, 128}, {}, 5),
      make_case({1, 40, 90, 2, 1, 256}, {Format::f16, Format::f16}, 5),
      make_case({1, 20, 300, 1, 1, 64}, nvfp4, 5),
      make_case({1, 20, 100, 1, 1, 128}, {Format::fp8_e4m3, Format::fp8_e4m3}, 5),
      make_case({1, 20, 50, 1, 1, 128}, f32, 5),
      make_case({1, 20, 40, 1, 1, 64}, f32, Format::bf16, Format::fp8_e4m3, Format::mxfp4, 5),
  };
  for (Case& c : cases) c.problem.causal = true;
  return cases;
}

inline void expect_on(Stream& stream, Case c, const Bounded& reference) {
  SCOPED_TRACE(describe(plan(c.problem, stream.device())));
  run_on(stream, &c);
  EXPECT_TRUE(within(to_floats(c.tensors.out), reference.out, reference.out_bound));
  EXPECT_TRUE(within(to_floats(c.tensors.lse), reference.lse, reference.lse_bound));
}
inline void expect_on(Stream& stream, const Case& c) { expect_on(stream, c, bounded(c)); }

}  // namespace halftone::test

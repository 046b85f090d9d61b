// Problems for decode attention, on a GPU or a simulated one.
#pragma once
#include "attention/attention_layouts.h"
#include "attention/attention_rules.h"
#include "attention/run_on.h"

namespace halftone::test {

struct DecodeFormats {
  AttentionMode mode;
  Format q, kv;
};
inline constexpr Format kBf16 = Format::bf16, kFp8 = Format::fp8_e4m3;
inline const DecodeFormats kDecodeFormats[] = {
    {{kBf16, kBf16}, kBf16, kBf16},
    {{Format::f16, Format::f16}, Format::f16, Format::f16},
    {{kFp8, kBf16}, kBf16, kFp8},
    {{Format::int8, kBf16}, kBf16, Format::int8},
    {{Format::nvfp4, kBf16}, kBf16, Format::nvfp4},
};

inline Case decode_case(const Sizes& sizes, const DecodeFormats& f, uint64_t seed,
                        Data data = Data::normal, bool per_row = true) {
  Case c = make_case(sizes, f.mode, f.q, f.kv, f.kv, seed, data, per_row);
  c.problem.prefetch_cache = seed % 2 == 0;
  return c;
}

// Every format with every rule, lengths around the edges of tiles and splits, groups around those
// of rows.
inline std::vector<Case> decode_cases() {
  std::vector<Case> cases;
  for (const DecodeFormats& f : kDecodeFormats) {
    uint64_t seed = 60;
    for (const int64_t keys : {1, 15, 16, 33, 127, 290, 1100}) {
      const int64_t dim = keys % 2 == 0 ? 128 : 64;
      cases.push_back(decode_case({2, 1, keys, 8, 2, dim}, f, ++seed));
    }
    for (const int64_t group : {1, 3, 8, 9, 16}) {
      cases.push_back(decode_case({1, 1, 70, 2 * group, 2, 128}, f, ++seed, Data::outliers));
    }
    cases.push_back(decode_case({1, 1, 70, 4, 2, 64}, f, ++seed, Data::normal, false));
    for (const Rule& rule : kRules) {
      Case c = decode_case({1, 1, 700, 4, 2, 128}, f, ++seed);
      rule.set(c);
      if (!c.problem.mask) cases.push_back(c);
    }
    Case c = decode_case({1, 1, 1300, 4, 2, 64}, f, ++seed, Data::outliers);
    c.problem.causal = true, c.problem.window_left = 800, c.problem.out = Format::bf16;
    cases.push_back(c);
    c = decode_case({3, 1, 1300, 4, 1, 128}, f, ++seed);
    c.problem.batch_invariant = true, c.problem.softmax_scale = -0.1f;
    c.problem.out = Format::f16;
    cases.push_back(c);
    for (const Format q : {Format::f32, Format::f16, f.mode.qk}) {
      if (f.kv != Format::f16)
        cases.push_back(make_case({1, 1, 50, 4, 2, 64}, f.mode, q, f.kv, f.kv, ++seed));
    }
  }
  // 257 splits of 128 keys, were there no bound: one more than the combining CTA has room for.
  cases.push_back(decode_case({1, 1, 257 * 128, 1, 1, 64}, kDecodeFormats[0], 60));
  return cases;
}

inline void expect_decode(Stream& stream, Case c) {
  const AttentionPlan decode = planned(c.problem, stream.device());
  SCOPED_TRACE(to_string(c.problem.mode) + ": " + std::to_string(c.problem.key_length) + " keys, " +
               describe(decode));
  EXPECT_NE(describe(decode).find("one query token"), std::string::npos);
  run_on(stream, &c);
  const Bounded reference = bounded(c);
  EXPECT_TRUE(within(to_floats(c.tensors.out), reference.out, reference.out_bound));
  EXPECT_TRUE(within(to_floats(c.tensors.lse), reference.lse, reference.lse_bound));
}

}  // namespace halftone::test

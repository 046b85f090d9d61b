// Problems for the attention kernel of sm_90a, on a GPU or a simulated one.
#pragma once
#include <utility>

#include "attention/million_keys.h"
#include "attention/run_on.h"

namespace halftone::test {

struct Sm90Case {
  Sizes sizes;
  Format format = Format::bf16;
  bool causal = false;
  int64_t left = -1, right = -1, chunk = 0;
  bool sinks = false;
};

inline Case make_case(const Sm90Case& s, uint64_t seed) {
  Case c = make_case(s.sizes, {s.format, s.format}, seed);
  AttentionProblem& p = c.problem;
  p.out = s.format;
  p.causal = s.causal, p.window_left = s.left, p.window_right = s.right;
  p.attention_chunk_size = s.chunk;
  p.sinks = s.sinks;
  if (s.sinks) c.tensors.sinks = random_tensor({p.heads}, Format::f32, seed + 77);
  return c;
}

// Around the edges of tiles of 64, 80, 112, 128 and 176 keys and of 128 and 192 rows; every
// instance.
inline std::vector<Sm90Case> sm90_cases() {
  return {
      {{1, 64, 112, 1, 1, 64}},
      {{2, 193, 225, 2, 1, 64}, Format::f16, true},
      {{1, 193, 300, 1, 1, 64}},
      {{1, 200, 1100, 1, 1, 64}, Format::bf16, true},  // a third warpgroup from 1025 keys on
      {{1, 70, 300, 3, 3, 40}, Format::bf16, true, 100},
      {{2, 300, 449, 2, 1, 64}, Format::bf16, true},
      {{1, 129, 65, 1, 1, 64}, Format::bf16, true},
      {{1, 130, 177, 2, 2, 128}},
      {{1, 70, 8200, 1, 1, 128}, Format::bf16, true},
      {{1, 257, 352, 4, 2, 128}, Format::f16},
      {{1, 130, 8200, 1, 1, 128}},
      {{1, 128, 128, 2, 1, 128}, Format::bf16, true},
      {{1, 200, 333, 2, 1, 128}, Format::bf16, true, -1, -1, 0, true},
      {{1, 129, 257, 1, 1, 96}, Format::bf16, false, 50, 20},
      {{1, 140, 140, 1, 1, 128}, Format::bf16, true, -1, -1, 48},
      {{1, 90, 40, 2, 1, 128}, Format::bf16, true},  // rows without keys
      {{1, 90, 40, 2, 1, 128}, Format::bf16, true, -1, -1, 0, true},
      {{1, 2, 500, 4, 1, 128}},
      {{1, 2050, 240, 1, 1, 96}},
      {{1, 4097, 130, 1, 1, 96}, Format::f16, true},
      {{1, 257, 352, 2, 1, 96}, Format::f16},
      {{1, 150, 300, 1, 1, 96, 72}, Format::bf16, true},
      {{1, 130, 130, 2, 1, 192, 128}, Format::bf16, true},
      {{1, 257, 225, 2, 1, 192}},
      {{1, 140, 300, 1, 1, 160, 136}, Format::f16, true},
      {{1, 150, 170, 1, 1, 256}},
      {{1, 100, 81, 2, 1, 256, 200}, Format::f16, true},
      {{1, 33, 0, 1, 1, 64}},
  };
}

// The last thousand of a million keys are visible to every query.
inline const Sm90Case kLongWindow{{1, 3, kMillion, 1, 1, 128}, Format::f16, true, 1000};

inline void expect_case(Stream& stream, Case c) {
  SCOPED_TRACE(describe(plan(c.problem, stream.device())));
  run_on(stream, &c);
  const Bounded reference = bounded(c);
  EXPECT_TRUE(within(to_floats(c.tensors.out), reference.out, reference.out_bound));
  EXPECT_TRUE(within(to_floats(c.tensors.lse), reference.lse, reference.lse_bound));
}
inline void expect_case(Stream& stream, const Sm90Case& s, uint64_t seed) {
  expect_case(stream, make_case(s, seed));
}

}  // namespace halftone::test

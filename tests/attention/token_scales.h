// Problems whose fp8 and int8 operands have a scale for 128 tokens of a head.
#pragma once
#include "attention/attention_layouts.h"

namespace halftone::test {

inline Case token_case(const Sizes& s, AttentionMode mode, uint64_t seed) {
  Case c = make_case(s, mode, seed);
  const auto make = [&](const Tensor& t, Format format, uint64_t which) {
    const Tensor x = random_tensor(t.shape(), Format::f32, seed * 10 + which, Data::outliers);
    return attention_operand(x, format, Stream::default_stream(), 128);
  };
  c.tensors.q = make(c.tensors.q, c.problem.q, 1);
  c.tensors.k = make(c.tensors.k, c.problem.k, 2);
  c.tensors.v = make(c.tensors.v, c.problem.v, 3);
  return c;
}

// Prompts and decode, the last block whole and not, one block, no keys.
inline std::vector<Case> token_cases() {
  const Format fp8 = Format::fp8_e4m3, int8 = Format::int8, bf16 = Format::bf16;
  std::vector<Case> cases = {
      token_case({2, 140, 300, 4, 2, 64}, {fp8, fp8}, 1),
      token_case({1, 70, 256, 2, 1, 128}, {fp8, bf16}, 2),
      token_case({1, 2, 530, 4, 2, 96}, {int8, bf16}, 3),
      token_case({1, 130, 129, 1, 1, 48, 32}, {int8, bf16}, 4),
      token_case({1, 1, 700, 8, 2, 128}, {fp8, fp8}, 5),
      token_case({1, 66, 100, 2, 2, 128}, {fp8, fp8}, 6),
  };
  for (size_t i = 0; i < cases.size(); i += 2) cases[i].problem.causal = true;
  return cases;
}

}  // namespace halftone::test

// Softcap, chunks, sinks and mask tensors to put into a case.
#pragma once
#include <functional>

#include "attention/attention_fixture.h"

namespace halftone::test {

inline Tensor boolean_mask(const Shape& shape, uint64_t seed, double hidden = 0.3) {
  Tensor mask = Tensor::empty(shape, Format::u8);
  std::mt19937_64 engine(seed);
  std::bernoulli_distribution hide(hidden);
  for (int64_t i = 0; i < mask.numel(); ++i) mask.data<uint8_t>()[i] = hide(engine) ? 0 : 1;
  return mask;
}
// N(0, 1), and -inf in places.
inline Tensor additive_mask(const Shape& shape, Format format, uint64_t seed) {
  Tensor mask = random_tensor(shape, Format::f32, seed).contiguous_copy();
  const Tensor shown = boolean_mask(shape, seed + 1);
  for (int64_t i = 0; i < mask.numel(); ++i) {
    if (shown.data<uint8_t>()[i] == 0) mask.data<float>()[i] = -INFINITY;
  }
  return convert(mask, format);
}
inline void set_mask(Case* c, const Tensor& mask) {
  c->problem.mask = mask.format(), c->tensors.mask = mask;
}
inline void set_sinks(Case* c, const Tensor& sinks) {
  c->problem.sinks = true, c->tensors.sinks = sinks;
}

struct Rule {
  const char* name;
  std::function<void(Case&)> set;
};
inline const Rule kRules[] = {
    {"softcap", [](Case& c) { c.problem.softcap = 1.5f; }},
    {"chunk", [](Case& c) { c.problem.attention_chunk_size = 70, c.problem.causal = true; }},
    {"sinks",
     [](Case& c) {
       set_sinks(&c, Tensor::from({2.5f, -1, 0, 4}, {4}));
     }},
    {"boolean mask",
     [](Case& c) {
       set_mask(&c, boolean_mask({1, 1, c.problem.query_length, c.problem.key_length}, 41));
       c.problem.causal = true;
     }},
    {"all",
     [](Case& c) {
       const AttentionProblem& p = c.problem;
       set_mask(&c, additive_mask({1, 4, p.query_length, p.key_length}, Format::f32, 42));
       set_sinks(&c, Tensor::from({1, 0.5f, -2, 3}, {4}));
       c.problem.softcap = 3, c.problem.attention_chunk_size = 150;
       c.problem.window_left = 100, c.problem.causal = true;
     }},
};

}  // namespace halftone::test

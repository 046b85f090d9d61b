// Random problems in every mode, shared by the attention tests.
#pragma once
#include <bit>
#include <string>
#include <vector>

#include "attention/attention_bound.h"
#include "halftone/attention.h"
#include "halftone/quantize.h"
#include "support/compare.h"

namespace halftone::test {

struct Sizes {
  int64_t batch = 1, queries = 1, keys = 1, heads = 1, kv_heads = 1, head_dim = 64, value_dim = 0;
};

struct Case {
  AttentionProblem problem;
  AttentionTensors tensors;
};

// The fp8 and int8 scalings that attention reads: one scale for a tensor, or one a row.
inline Tensor in_format(const Tensor& x, Format format, bool per_row = true) {
  if (is_plain_float(format)) return convert(x, format);
  QuantizeOptions options(format);
  if (!is_block(format)) options.scaling = {Format::f32, per_row ? 1 : 0, 0};
  return quantize(x, options);
}

inline Case make_case(const Sizes& s, AttentionMode mode, Format q, Format k, Format v,
                      uint64_t seed = 1, Data data = Data::normal, bool per_row = true) {
  Case c;
  AttentionProblem& p = c.problem;
  p.batch = s.batch, p.query_length = s.queries, p.key_length = s.keys;
  p.heads = s.heads, p.kv_heads = s.kv_heads;
  p.head_dim = s.head_dim, p.value_dim = s.value_dim == 0 ? s.head_dim : s.value_dim;
  p.mode = mode, p.q = q, p.k = k, p.v = v, p.out = Format::f32, p.lse = true;
  const auto make = [&](Shape shape, Format format, uint64_t which) {
    return in_format(random_tensor(shape, Format::f32, seed * 10 + which, data), format, per_row);
  };
  c.tensors.q = make({s.batch, s.queries, s.heads, s.head_dim}, q, 1);
  c.tensors.k = make({s.batch, s.keys, s.kv_heads, s.head_dim}, k, 2);
  c.tensors.v = make({s.batch, s.keys, s.kv_heads, p.value_dim}, v, 3);
  return c;
}
// The mode's own formats; V of a mode with P in fp8 is E4M3.
inline Case make_case(const Sizes& s, AttentionMode mode, uint64_t seed = 1,
                      Data data = Data::normal) {
  return make_case(s, mode, mode.qk, mode.qk, mode.pv, seed, data);
}

// Runs a case into fresh outputs.
inline void run_case(Case* c, int threads = 2) {
  Stream stream(Device::cpu(), threads);
  const AttentionProblem& p = c->problem;
  const Tensor& q = c->tensors.q;
  c->tensors.out = q.rank() == 4
                       ? Tensor::empty({q.size(0), q.size(1), p.heads, p.value_dim}, p.out)
                       : Tensor::empty({q.size(0), p.heads, p.value_dim}, p.out);
  c->tensors.lse = Tensor::zeros({p.batch, p.heads, p.query_length}, Format::f32);
  run(plan(p, Device::cpu()), c->tensors, stream);
}

inline std::vector<float> values_of(const Tensor& t) {
  return is_plain_float(t.format()) ? to_floats(t) : to_floats(dequantize(t));
}
inline Bounded bounded(const Case& c, const HopperTiles& hopper = {}) {
  return bounded_attention(c.problem, values_of(c.tensors.q), values_of(c.tensors.k),
                           values_of(c.tensors.v), c.tensors.mask, c.tensors.sinks, hopper);
}

// out and lse within their bounds.
inline void expect_within(Case* c, const Bounded& reference) {
  run_case(c);
  EXPECT_TRUE(within(to_floats(c->tensors.out), reference.out, reference.out_bound));
  EXPECT_TRUE(within(to_floats(c->tensors.lse), reference.lse, reference.lse_bound));
}
inline void expect_within_bound(Case* c) {
  SCOPED_TRACE(to_string(c->problem.mode) + " q " + name(c->problem.q) + " k " +
               name(c->problem.k) + " v " + name(c->problem.v));
  expect_within(c, bounded(*c));
}

// The same bits of out and lse.
inline void expect_same(const Case& a, const Case& b) {
  const std::vector<float> x = to_floats(a.tensors.out), y = to_floats(b.tensors.out);
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(x[i]), std::bit_cast<uint32_t>(y[i])) << "element " << i;
  }
}

}  // namespace halftone::test

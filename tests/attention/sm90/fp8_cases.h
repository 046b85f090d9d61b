// Problems for E4M3 attention on sm_90a, on a GPU or a simulated one.
#pragma once
#include <span>
#include <utility>

#include "attention/sm90/cases.h"

namespace halftone::test {

// What shares a scale.
enum class Shared { none, tensor, head, row, block };  // block: 128 rows of a head

struct Fp8Case {
  Sizes sizes;
  bool causal = false;
  int64_t left = -1, right = -1, chunk = 0;
  bool sinks = false;
  Shared q = Shared::head, kv = Shared::head;
  Data data = Data::normal;
};

// An operand and the values that it has, so that no other code has to read it.
struct Fp8Operand {
  Tensor tensor;
  std::vector<float> values;
};
inline Fp8Operand fp8_operand(const Tensor& x, Shared shared) {
  const Shape shape = x.shape();
  const int64_t length = shape[1], heads = shape[2], dim = shape[3];
  Shape extents = {1, 1, 1, 1};
  if (shared == Shared::head) extents = {shape[0], 1, heads, 1};
  if (shared == Shared::row) extents = {shape[0], length, heads, 1};
  const int64_t blocks = (length + 127) / 128;
  if (shared == Shared::block) extents = {shape[0], blocks, heads, 1};
  const auto place = [&](int64_t row) {  // of the scale of a row of a head
    const int64_t head = row % heads, batch = row / heads / length;
    const int64_t block = batch * blocks + row / heads % length / 128;
    return static_cast<size_t>(shared == Shared::row     ? row
                               : shared == Shared::block ? block * heads + head
                               : shared == Shared::head  ? batch * heads + head
                                                         : 0);
  };
  const std::vector<float> source = to_floats(x);
  Tensor scales = Tensor::zeros(extents, Format::f32);
  const std::span<float> scale(scales.data<float>(), static_cast<size_t>(scales.numel()));
  for (size_t i = 0; i < source.size(); ++i) {
    float& most = scale[place(static_cast<int64_t>(i) / dim)];
    most = std::max(most, std::abs(source[i]) / 448);
  }
  if (shared == Shared::none) scale[0] = 1;
  Fp8Operand result{Tensor::zeros(shape, Format::fp8_e4m3), source};
  uint8_t* codes = result.tensor.data<uint8_t>();
  for (size_t i = 0; i < source.size(); ++i) {
    const float s = scale[place(static_cast<int64_t>(i) / dim)];
    codes[i] = encode_e4m3(s == 0 ? 0 : source[i] / s);
    result.values[i] = decode_e4m3(codes[i]) * s;
  }
  if (shared != Shared::none) {
    result.tensor =
        result.tensor.quantized({Format::f32, shared == Shared::tensor ? 0 : 1, 0}, scales);
  }
  return result;
}
inline Fp8Operand fp8_operand(const Shape& shape, Shared shared, uint64_t seed, Data data) {
  return fp8_operand(random_tensor(shape, Format::f32, seed, data), shared);
}

struct Fp8Problem {
  Case c;
  Fp8Operand q, k, v;
};
inline Fp8Problem make_fp8(const Fp8Case& s, uint64_t seed) {
  Fp8Problem made;
  AttentionProblem& p = made.c.problem;
  const Sizes& n = s.sizes;
  p.batch = n.batch, p.query_length = n.queries, p.key_length = n.keys;
  p.heads = n.heads, p.kv_heads = n.kv_heads;
  p.head_dim = n.head_dim, p.value_dim = n.value_dim == 0 ? n.head_dim : n.value_dim;
  p.q = p.k = p.v = Format::fp8_e4m3, p.mode = {Format::fp8_e4m3, Format::fp8_e4m3};
  p.causal = s.causal, p.window_left = s.left, p.window_right = s.right;
  p.attention_chunk_size = s.chunk, p.sinks = s.sinks, p.lse = true;
  made.q = fp8_operand({n.batch, n.queries, n.heads, n.head_dim}, s.q, seed * 10 + 1, s.data);
  made.k = fp8_operand({n.batch, n.keys, n.kv_heads, n.head_dim}, s.kv, seed * 10 + 2, s.data);
  made.v = fp8_operand({n.batch, n.keys, n.kv_heads, p.value_dim}, s.kv, seed * 10 + 3, s.data);
  AttentionTensors& t = made.c.tensors;
  t.q = made.q.tensor, t.k = made.k.tensor, t.v = made.v.tensor;
  if (s.sinks) t.sinks = random_tensor({p.heads}, Format::f32, seed + 77);
  return made;
}

inline Bounded bounded(const Fp8Problem& x) {
  const AttentionProblem& p = x.c.problem;
  const int64_t widest = std::max(p.head_dim, p.value_dim);
  const int64_t keys = widest <= 64 ? 192 : widest <= 128 ? 256 : 128;  // of a tile
  return bounded_attention(p, x.q.values, x.k.values, x.v.values, {}, x.c.tensors.sinks,
                           {true, keys});
}

// A million keys of which none may be missing.
inline Fp8Problem million_fp8() {
  const Sizes s{1, 64, kMillion, 1, 1, 64};  // fewer queries are another kernel's
  Fp8Problem made = make_fp8({{1, 64, 1, 1, 1, 64}}, 2);
  const Needles n = needles(s, 2, kFp8Run);
  made.c.problem.key_length = s.keys;
  made.q = fp8_operand(n.q, Shared::head), made.k = fp8_operand(n.k, Shared::head);
  made.v = fp8_operand(n.v, Shared::head);
  AttentionTensors& t = made.c.tensors;
  t.q = made.q.tensor, t.k = made.k.tensor, t.v = made.v.tensor;
  return made;
}

// Around the edges of tiles of 128 to 256 keys and of 128 and 192 rows; every instance.
inline std::vector<Fp8Case> fp8_cases() {
  using enum Shared;
  return {
      {{1, 64, 128, 1, 1, 64}, false, -1, -1, 0, false, none, none},
      {{2, 193, 225, 2, 1, 64}, true},
      {{1, 70, 300, 3, 3, 48, 32}, true, 100, -1, 0, false, row, tensor},
      {{1, 130, 257, 2, 2, 128}, false, -1, -1, 0, false, head, head, Data::outliers},
      {{1, 257, 513, 4, 2, 128}, true, -1, -1, 0, true, row, head},
      {{1, 129, 257, 1, 1, 96, 112}, false, 50, 20, 0, false, tensor, tensor},
      {{1, 140, 140, 1, 1, 128}, true, -1, -1, 48},
      {{1, 90, 40, 2, 1, 128}, true, -1, -1, 0, true},  // rows without keys
      {{1, 130, 130, 2, 1, 192, 128}, true},
      {{1, 150, 290, 1, 1, 256}},
      {{1, 100, 81, 2, 1, 256, 208}, true, -1, -1, 0, false, none, none, Data::outliers},
      {{1, 65, 0, 1, 1, 64}},
      {{1, 64, 300, 2, 1, 64}, true, -1, -1, 0, false, row, row, Data::outliers},
      {{1, 129, 300, 2, 2, 128}, true, 60, -1, 0, true, row, row},
      {{2, 70, 129, 2, 1, 208, 256}, false, -1, -1, 0, false, head, row},
      {{2, 140, 300, 4, 2, 64}, true, -1, -1, 0, false, block, block, Data::outliers},
      {{1, 300, 700, 2, 2, 128}, true, 300, -1, 0, true, block, block, Data::outliers},
      {{2, 130, 257, 2, 1, 192, 128}, false, -1, -1, 0, false, row, block},
      {{1, 129, 390, 1, 1, 256}, true, -1, -1, 0, false, block, block},
  };
}

inline void expect_fp8(Stream& stream, Fp8Problem x) {
  SCOPED_TRACE(describe(plan(x.c.problem, stream.device())));
  run_on(stream, &x.c);
  const Bounded reference = bounded(x);
  EXPECT_TRUE(within(to_floats(x.c.tensors.out), reference.out, reference.out_bound));
  EXPECT_TRUE(within(to_floats(x.c.tensors.lse), reference.lse, reference.lse_bound));
}
inline void expect_fp8(Stream& stream, const Fp8Case& s, uint64_t seed) {
  expect_fp8(stream, make_fp8(s, seed));
}

}  // namespace halftone::test

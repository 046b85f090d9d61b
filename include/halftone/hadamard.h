// A signed Walsh-Hadamard transform of queries and keys, for attention in few bits.
//
// A row becomes y = H S x / sqrt(n): S changes signs, H is the n x n matrix of
// (-1)^popcount(i & j). H S / sqrt(n) is orthogonal, so q . k and with it attention stays what it
// was when both are transformed; but an outlier of a row is spread over all of it, and neither sets
// the row's scale nor carries the largest rounding error alone
// (docs/findings/attention-accuracy.md).
#pragma once
#include <cstdint>

#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

inline constexpr int64_t kLargestHadamard = 1024;
// n: the largest power of two that divides head_dim, 1024 at most. A head of 96 elements is three
// blocks of 32, each transformed by itself.
constexpr int64_t hadamard_block(int64_t head_dim) {
  const int64_t power = head_dim & -head_dim;
  return power < kLargestHadamard ? power : kLargestHadamard;
}
// Bit e: whether element 8 * eight + e of a head changes its sign, eight < 128; signs repeat every
// 1024 elements. Without them a row of equal elements would become one outlier. The mixing is that
// of a 32-bit hash (MurmurHash3's first round), whose upper bits depend on all below.
constexpr uint32_t hadamard_signs(uint32_t eight) {
  uint32_t mixed = (eight + 1) * 0x9e3779b9u;
  mixed = (mixed ^ mixed >> 16) * 0x85ebca6bu;
  return mixed >> 24;
}

struct HadamardProblem {
  int64_t head_dim = 0;
  Format format = Format::bf16;  // f32, f16, bf16; on GPUs those of 16 bits
};
// On CPUs any head_dim, on GPUs 64, 128, 256 or 512.
Support can_run(const HadamardProblem&, const Device&);

// x [tokens, heads, head_dim] or [batch, length, heads, head_dim], last stride 1. Sums are made in
// f32, of pairs at strides 1, 2, 4 and so on, then multiplied by 1 / sqrt(n) and rounded once to
// x's format: finite results have the same bits on every device.
Tensor hadamard(const Tensor& x, Stream& = Stream::default_stream());
// Without allocation. `out` is x itself or shares no memory with it, and has its shape and format.
void hadamard_into(const Tensor& x, Tensor& out, Stream& = Stream::default_stream());
Tensor hadamard_reference(const Tensor& x);  // FP64, by the matrix -> f32

}  // namespace halftone

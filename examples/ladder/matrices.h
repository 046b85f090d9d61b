// Random operands, and how far a product is from the exact one.
#pragma once
#include <cstdint>
#include <vector>

namespace halftone::ladder {

// bf16 values from a normal distribution.
std::vector<uint16_t> random_matrix(int64_t rows, int64_t columns, uint64_t seed);

// Of the rows compared, against sums in FP64 of the same bf16 values.
struct Distance {
  double relative = 0;  // ||c - exact|| / ||exact||
  double worst = 0;     // largest |c - exact| in units of what an element may be wrong, see below
  int64_t row = 0, column = 0;  // where that is
  int64_t unwritten = 0;        // NaN anywhere in c
};

// What an element c = sum a b may be wrong: half a step of bf16, 2^-8 |c|, and for each of the k
// sums in f32 one truncation, 2^-23 of at most S = sum |a b|, in which the tensor cores round down:
//   2^-8 |c| + (k 2^-23 + 2^-22) S.
// `rows` rows are compared, spread over the matrix (all when there are fewer).
Distance distance(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b,
                  const std::vector<uint16_t>& c, int64_t m, int64_t n, int64_t k, int64_t rows);

}  // namespace halftone::ladder

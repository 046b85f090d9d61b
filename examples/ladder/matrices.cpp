#include "matrices.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <random>

namespace halftone::ladder {

namespace {

float widen(uint16_t code) { return std::bit_cast<float>(uint32_t{code} << 16); }
uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

std::vector<uint16_t> random_matrix(int64_t rows, int64_t columns, uint64_t seed) {
  // Large matrices draw from a table of 65536 normal values: as random to a product, and fast.
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> table(65536);
  for (uint16_t& x : table) x = to_bf16(normal(random));
  std::vector<uint16_t> values(static_cast<size_t>(rows * columns));
  uint64_t bits = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    bits = i % 4 == 0 ? random() : bits >> 16;
    values[i] = table[bits & 0xffff];
  }
  return values;
}

Distance distance(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b,
                  const std::vector<uint16_t>& c, int64_t m, int64_t n, int64_t k, int64_t rows) {
  Distance result;
  for (uint16_t code : c) result.unwritten += std::isnan(widen(code));
  const int64_t count = std::min(rows, m);
  double error = 0, norm = 0;
  std::vector<float> row(static_cast<size_t>(k));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t r = count == 1 ? 0 : i * (m - 1) / (count - 1);  // the first and last included
    for (int64_t x = 0; x < k; ++x) row[static_cast<size_t>(x)] = widen(a[size_t(r * k + x)]);
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      const uint16_t* column = b.data() + j * k;
      for (int64_t x = 0; x < k; ++x) {
        const double product = double{row[static_cast<size_t>(x)]} * double{widen(column[x])};
        sum += product;
        size += std::abs(product);
      }
      const double off = std::abs(double{widen(c[size_t(r * n + j)])} - sum);
      const double allowed =
          std::ldexp(std::abs(sum), -8) + (static_cast<double>(k) * 0x1p-23 + 0x1p-22) * size;
      error += off * off;
      norm += sum * sum;
      const double share = allowed > 0 ? off / allowed : (off == 0 ? 0 : INFINITY);
      if (!(share <= result.worst)) result.worst = share, result.row = r, result.column = j;
    }
  }
  result.relative = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
  return result;
}

}  // namespace halftone::ladder

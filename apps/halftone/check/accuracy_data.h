// Random operands of `halftone check`, how far results are from references, and whether they
// repeat.
#pragma once
#include <cmath>
#include <cstring>
#include <random>

#include "check/accuracy_row.h"
#include "halftone/tensor.h"

namespace halftone {

inline Tensor random_matrix(int64_t rows, int64_t columns, bool outliers, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  Tensor t = Tensor::empty({rows, columns}, Format::f32);
  for (int64_t i = 0; i < t.numel(); ++i) {
    float x = normal(engine);
    if (outliers && engine() % 1000 == 0) x += 10 * normal(engine);
    t.data<float>()[i] = x;
  }
  return t;
}

struct Distance {
  double cosine = 1, relative_l2 = 0, max = 0;
  int64_t worst = 0;
};

// Both f32 and contiguous. A value that is not finite on one side alone is infinitely far.
inline Distance distance(const Tensor& result, const Tensor& reference) {
  Distance d;
  double dot = 0, rr = 0, xx = 0, ee = 0;
  for (int64_t i = 0; i < reference.numel(); ++i) {
    const double x = result.data<float>()[i], r = reference.data<float>()[i];
    double e = std::abs(x - r);
    if (!std::isfinite(e)) e = x == r || (std::isnan(x) && std::isnan(r)) ? 0 : INFINITY;
    if (e > d.max) d.max = e, d.worst = i;
    dot += x * r, rr += r * r, xx += x * x, ee += e * e;
  }
  if (rr > 0) d.relative_l2 = std::sqrt(ee / rr);
  if (rr > 0 && xx > 0) d.cosine = dot / std::sqrt(rr * xx);
  return d;
}

// What `once` returns, a plain tensor on the CPU, row-major; of `runs` calls those are counted that
// return other bits than the first.
template <class Once>
Tensor repeated(int64_t runs, const Once& once, AccuracyRow* row) {
  const Tensor first = once();
  row->runs = runs;
  for (int64_t i = 1; i < runs; ++i) {
    const Tensor again = once();
    if (std::memcmp(first.data(), again.data(), static_cast<size_t>(first.bytes())) != 0) {
      ++row->differing_runs;
    }
  }
  return first;
}

}  // namespace halftone

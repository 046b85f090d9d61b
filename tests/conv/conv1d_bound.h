// How far a convolution may be from the reference.
#pragma once
#include <cmath>

#include "halftone/conv.h"
#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone::test {

inline Tensor magnitude(const Tensor& x) {
  if (!x.defined()) return x;
  std::vector<float> values = to_floats(x);
  for (float& v : values) v = std::abs(v);
  return Tensor::from<float>(values, x.shape(), Format::f32);
}

// Blocks of 64 terms, K / 64 of them, the bias and the product: (66 + K / 64) u of the sum of
// magnitudes. The activations here do not stretch differences by more than 1.2; their own error is
// within 200 u of the result.
inline std::vector<double> conv1d_bounds(const Tensor& x, const Tensor& w, const Tensor& b,
                                         const Conv1dOptions& o,
                                         const std::vector<float>& reference, Format out) {
  Conv1dOptions plain = o;
  plain.activation = {.kind = Activation::identity};
  const std::vector<float> sums =
      to_floats(conv1d_reference(magnitude(x), magnitude(w), magnitude(b), plain));
  const double terms = static_cast<double>(w.size(1) * w.size(2));
  std::vector<double> bound;
  for (size_t i = 0; i < sums.size(); ++i) {
    const double error = 1.2 * (66 + terms / 64) * kF32Roundoff * sums[i] +
                         200 * kF32Roundoff * std::abs(reference[i]);
    bound.push_back(rounded_bound(out, reference[i], 0) + error * 1.01);
  }
  return bound;
}

}  // namespace halftone::test

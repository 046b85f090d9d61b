// Softmax in FP64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/message.h"
#include "halftone/quantize.h"
#include "halftone/softmax.h"

namespace halftone {

Tensor softmax_reference(const Tensor& x, float scale) {
  require(x.rank() >= 1, "softmax_reference: x is a scalar; it needs at least one dimension");
  const Tensor values = convert(x, Format::f32);
  Tensor out = Tensor::empty(x.shape(), Format::f32);
  const int64_t columns = x.size(-1);
  for (int64_t first = 0; first < x.numel(); first += columns) {
    const float* in = values.data<float>() + first;
    float* row = out.data<float>() + first;
    const bool any_nan = std::any_of(in, in + columns, [](float v) { return std::isnan(v); });
    const double most = *std::max_element(in, in + columns);
    if (any_nan || most == -std::numeric_limits<double>::infinity()) {
      std::fill_n(row, columns, any_nan ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
      continue;
    }
    double sum = 0;
    for (int64_t i = 0; i < columns; ++i) sum += std::exp((in[i] - most) * scale);
    for (int64_t i = 0; i < columns; ++i) {
      row[i] = static_cast<float>(std::exp((in[i] - most) * scale) / sum);
    }
  }
  return out;
}

}  // namespace halftone

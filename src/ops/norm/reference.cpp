#include <cmath>

#include "base/message.h"
#include "halftone/norm.h"
#include "halftone/quantize.h"

namespace halftone {

Tensor rms_norm_reference(const Tensor& x, const Tensor& weight, float eps) {
  require(x.rank() >= 1 && weight.rank() == 1 && weight.size(0) == x.size(-1),
          "rms_norm_reference: weight ", to_string(weight.shape()), " does not fit x ",
          to_string(x.shape()));
  const Tensor values = convert(x, Format::f32), weights = convert(weight, Format::f32);
  Tensor out = Tensor::empty(x.shape(), Format::f32);
  const int64_t columns = x.size(-1);
  for (int64_t first = 0; first < x.numel(); first += columns) {
    const float* in = values.data<float>() + first;
    double squares = 0;
    for (int64_t i = 0; i < columns; ++i) squares += double{in[i]} * in[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + double{eps});
    for (int64_t i = 0; i < columns; ++i) {
      out.data<float>()[first + i] = static_cast<float>(in[i] * scale * weights.data<float>()[i]);
    }
  }
  return out;
}

}  // namespace halftone

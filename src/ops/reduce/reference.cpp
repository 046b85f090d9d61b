// Reductions in FP64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/message.h"
#include "halftone/quantize.h"
#include "halftone/reduce.h"

namespace halftone {

namespace {

// Row-major f32, as decoded: what formats/convert.cpp and dequantize.cpp are tested to give.
Tensor decoded(const Tensor& x) {
  if (x.has_scales() || is_fp8(x.format())) return dequantize(x);
  if (is_plain_float(x.format())) return convert(x, Format::f32);
  const Tensor dense = x.contiguous_copy();
  Tensor out = Tensor::empty(x.shape(), Format::f32);
  for (int64_t i = 0; i < x.numel(); ++i) {
    float& to = out.data<float>()[i];
    switch (x.format()) {
      case Format::i32:
        to = static_cast<float>(dense.data<int32_t>()[i]);
        break;
      case Format::i64:
        to = static_cast<float>(dense.data<int64_t>()[i]);
        break;
      case Format::int8:
        to = dense.data<int8_t>()[i];
        break;
      default:
        to = dense.data<uint8_t>()[i];
    }
  }
  return out;
}

}  // namespace

Tensor reduce_reference(Reduction operation, const Tensor& x, int axis, const Tensor& y) {
  require(x.rank() >= 1, "reduce_reference: x is a scalar");
  if (axis < 0) axis += x.rank();
  const Tensor a = decoded(x), b = y.defined() ? decoded(y) : a;
  int64_t inner = 1, outer = 1;
  int64_t extents[Dims::kMaxRank] = {1};
  int rank = 0;
  for (int d = 0; d < x.rank(); ++d) {
    if (d != axis) extents[rank++] = x.size(d);
    if (d < axis) outer *= x.size(d);
    if (d > axis) inner *= x.size(d);
  }
  const bool arg = operation == Reduction::argmax || operation == Reduction::argmin;
  Tensor out = Tensor::empty(Shape(extents, static_cast<size_t>(std::max(rank, 1))),
                             arg ? Format::i64 : Format::f32);
  const int64_t n = x.size(axis);
  const auto *from = a.data<float>(), *other = b.data<float>();
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t c = 0; c < inner; ++c) {
      const auto at = [&](const float* t, int64_t i) -> double {
        return t[(o * n + i) * inner + c];
      };
      double sum = 0, best = std::numeric_limits<double>::quiet_NaN();
      int64_t where = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double v = at(from, i);
        switch (operation) {
          case Reduction::sum:
          case Reduction::mean:
            sum += v;
            break;
          case Reduction::sum_of_squares:
            sum += v * v;
            break;
          case Reduction::dot:
            sum += v * at(other, i);
            break;
          default: {
            const bool most = operation == Reduction::max || operation == Reduction::argmax;
            const bool better = std::isnan(v) ? !std::isnan(best) : most ? v > best : v < best;
            if (i == 0 || (better && !std::isnan(best))) best = v, where = i;
          }
        }
      }
      const int64_t to = o * inner + c;
      if (arg) {
        out.data<int64_t>()[to] = where;
      } else if (operation == Reduction::max || operation == Reduction::min) {
        out.data<float>()[to] = static_cast<float>(best);
      } else {
        const bool mean = operation == Reduction::mean;
        out.data<float>()[to] = static_cast<float>(mean ? sum / static_cast<double>(n) : sum);
      }
    }
  }
  return out;
}

}  // namespace halftone

// RoPE in FP64.
#include <cmath>
#include <vector>

#include "base/message.h"
#include "halftone/quantize.h"
#include "halftone/rope.h"
#include "ops/rope/frequencies.h"

namespace halftone {

Tensor rope_reference(const Tensor& x, const Tensor& positions, const RopeOptions& options) {
  require(x.rank() == 3 && positions.rank() == 1 && positions.size(0) == x.size(0),
          "rope_reference: positions ", to_string(positions.shape()), " do not fit x ",
          to_string(x.shape()));
  const std::vector<double> frequencies =
      rope_frequencies(options, x.size(2), sequence_length(options, positions));
  const double magnitude = rope_magnitude(options);
  const auto pairs = static_cast<int64_t>(frequencies.size());
  const bool half = options.style == RopeStyle::half_split;
  const Tensor values = convert(x, Format::f32);
  Tensor out = values.contiguous_copy();
  for (int64_t t = 0; t < x.size(0); ++t) {
    const int64_t where = t * positions.stride(0);
    const auto position =
        static_cast<double>(positions.format() == Format::i64 ? positions.data<int64_t>()[where]
                                                              : positions.data<int32_t>()[where]);
    for (int64_t h = 0; h < x.size(1); ++h) {
      const int64_t first = (t * x.size(1) + h) * x.size(2);
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = position * frequencies[static_cast<size_t>(i)];
        const int64_t a = first + (half ? i : 2 * i), b = first + (half ? i + pairs : 2 * i + 1);
        const double va = values.data<float>()[a], vb = values.data<float>()[b];
        const double c = magnitude * std::cos(angle), s = magnitude * std::sin(angle);
        out.data<float>()[a] = static_cast<float>(va * c - vb * s);
        out.data<float>()[b] = static_cast<float>(vb * c + va * s);
      }
    }
  }
  return out;
}

}  // namespace halftone

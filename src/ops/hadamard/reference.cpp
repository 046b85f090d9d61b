// The Walsh-Hadamard transform by its matrix, in FP64.
#include <bit>
#include <cmath>

#include "base/message.h"
#include "halftone/hadamard.h"
#include "halftone/quantize.h"

namespace halftone {

Tensor hadamard_reference(const Tensor& x) {
  require(x.defined() && x.rank() >= 1 && x.size(-1) > 0, "hadamard_reference: x is ",
          x.defined() ? to_string(x) : "undefined", "; it must be [..., head_dim]");
  const Tensor values = convert(x, Format::f32).contiguous_copy();
  const Tensor out = Tensor::empty(x.shape(), Format::f32);
  const int64_t dim = x.size(-1), block = hadamard_block(dim);
  const double scale = 1 / std::sqrt(static_cast<double>(block));
  for (int64_t at = 0; at < x.numel(); at += block) {
    for (int64_t i = 0; i < block; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < block; ++j) {
        const auto place = static_cast<uint32_t>((at + j) % dim % kLargestHadamard);
        const uint32_t minus = static_cast<uint32_t>(std::popcount(static_cast<uint64_t>(i & j))) +
                               (hadamard_signs(place / 8) >> place % 8);
        const double v = values.data<float>()[at + j];
        sum += minus % 2 != 0 ? -v : v;
      }
      out.data<float>()[at + i] = static_cast<float>(sum * scale);
    }
  }
  return out;
}

}  // namespace halftone

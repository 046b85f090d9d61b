// Permuted copies element by element.
#include <cstring>

#include "base/message.h"
#include "halftone/transpose.h"

namespace halftone {

Tensor permute_reference(const Tensor& x, const Dims& order) {
  require(order.rank() == x.rank(), "permute_reference: order ", to_string(order), " of ", x.rank(),
          " dimensions");
  Shape shape = x.shape();
  for (int i = 0; i < x.rank(); ++i) shape[i] = x.size(static_cast<int>(order[i]));
  Tensor out = Tensor::empty(shape, x.format());
  const int64_t bytes = bits(x.format()) / 8;
  for (int64_t flat = 0; flat < out.numel(); ++flat) {
    int64_t rest = flat, from = 0;
    for (int d = x.rank() - 1; d >= 0; --d) {
      from += rest % shape[d] * x.stride(static_cast<int>(order[d]));
      rest /= shape[d];
    }
    std::memcpy(out.data<char>() + flat * bytes, x.data<char>() + from * bytes,
                static_cast<size_t>(bytes));
  }
  return out;
}

}  // namespace halftone

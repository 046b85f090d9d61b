#include <vector>

#include "base/message.h"
#include "base/thread_pool.h"
#include "halftone/matmul.h"
#include "halftone/quantize.h"
#include "ops/product/weights.h"

namespace halftone {

Tensor matmul_reference(const Tensor& x, const Tensor& weight) {
  require(weight.defined() && weight.rank() == 2, "weight must have two dimensions, [N, K]");
  const int64_t n = weight.size(0), k = weight.size(1);
  require(x.defined() && x.rank() >= 1 && x.size(-1) == k, "x ", to_string(x.shape()),
          " and weight ", to_string(weight.shape()), " differ in their last dimension, K");
  const std::string reason =
      product::refuse_weight(weight.format(), weight.has_scales(),
                             weight.has_scales() ? weight.scaling() : Scaling{}, n, k);
  if (!reason.empty()) throw Error(ErrorCode::unsupported, reason);
  const product::Weights w = product::view_of(weight, "weight");
  const Tensor values = x.format() == Format::f32 ? x.contiguous_copy() : convert(x, Format::f32);
  const int64_t m = x.numel() / k;
  Shape shape = x.shape();
  shape[x.rank() - 1] = n;
  Tensor out = Tensor::empty(shape, Format::f32);
  const auto rows = [&](int64_t begin, int64_t end) {
    std::vector<double> row(static_cast<size_t>(k));
    for (int64_t j = begin; j < end; ++j) {
      product::weight_row(w, j, row.data());
      for (int64_t i = 0; i < m; ++i) {
        const float* xs = values.data<float>() + i * k;
        double sum = 0;
        for (int64_t e = 0; e < k; ++e) sum += row[static_cast<size_t>(e)] * xs[e];
        out.data<float>()[i * n + j] = static_cast<float>(sum);
      }
    }
  };
  Stream::default_stream().pool().parallel_for(n, 8, rows);
  return out;
}

}  // namespace halftone

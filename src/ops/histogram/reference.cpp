// Histograms, one value after another.
#include "base/message.h"
#include "formats/row_reader.h"
#include "halftone/histogram.h"

namespace halftone {

Tensor histogram_reference(const Tensor& x, int64_t bins, const Tensor& edges) {
  Tensor counts = Tensor::zeros({bins}, Format::i64);
  const int64_t columns = x.rank() > 0 ? x.size(-1) : 1;
  const RowReader reader(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    float pair[2];
    const int64_t column = i % columns, even = column / 2 * 2;
    const double v = reader.read(i / columns, even, column == even ? 1 : 2, pair)[column - even];
    if (!edges.defined()) {
      require(v >= 0 && v < static_cast<double>(bins), "histogram_reference: x[", i, "] is ", v);
      ++counts.data<int64_t>()[static_cast<int64_t>(v)];
      continue;
    }
    const float* e = edges.data<float>();
    for (int64_t bin = 0; bin < bins; ++bin) {
      const bool closed = v == e[bins] && e[bin] < e[bins] && e[bin + 1] == e[bins];
      if ((v >= e[bin] && v < e[bin + 1]) || closed) {
        ++counts.data<int64_t>()[bin];
        break;
      }
    }
  }
  return counts;
}

}  // namespace halftone

#include <algorithm>

#include "base/message.h"
#include "base/thread_pool.h"
#include "formats/gpu/kernels.h"
#include "formats/kernels.h"
#include "formats/row_quantizer.h"
#include "formats/rows.h"
#include "halftone/quantize.h"

namespace halftone {

Tensor convert(const Tensor& x, Format out, Stream& stream) {
  require(x.defined(), "convert: x is undefined");
  require(is_plain_float(x.format()) && is_plain_float(out),
          "convert goes between f32, f16 and bf16, not from ", name(x.format()), " to ", name(out),
          "; quantize and dequantize do the others");
  require(x.device() == stream.device(), "convert: x is on ", x.device().name(),
          " and the stream on ", stream.device().name(), "; both must be on the same device");
  if (!x.device().is_cpu()) {
    const Tensor result = Tensor::empty(x.shape(), out, x.device());
    expand_gpu(x, result, stream);
    return result;
  }
  if (out == x.format()) return x.contiguous_copy();
  Tensor result = Tensor::empty(x.shape(), out);
  if (x.numel() == 0) return result;
  const bool flat = x.contiguous();
  const Tensor source =
      flat || x.rank() == 0 || x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous_copy();
  const FormatKernels& kernels = format_kernels();
  const int64_t piece = piece_of(x.numel(), stream.pool().size());
  if (source.contiguous()) {
    stream.pool().parallel_for(x.numel(), piece, [&](int64_t begin, int64_t end) {
      kernels.convert(x.format(), out, address(source, begin), end - begin,
                      result.data<char>() + begin * plain_bytes(out));
    });
    return result;
  }
  const int64_t columns = x.size(-1);
  const int64_t grain = std::max<int64_t>(1, piece / columns);
  stream.pool().parallel_for(row_count(x), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernels.convert(x.format(), out, address(source, row_offset(source, row)), columns,
                      result.data<char>() + row * columns * plain_bytes(out));
    }
  });
  return result;
}

}  // namespace halftone

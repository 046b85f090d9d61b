#include <algorithm>
#include <vector>

#include "base/message.h"
#include "base/thread_pool.h"
#include "formats/gpu/kernels.h"
#include "formats/kernels.h"
#include "formats/row_quantizer.h"
#include "formats/rows.h"
#include "formats/scale_reader.h"
#include "halftone/quantize.h"

namespace halftone {

void expand_gpu(const Tensor& x, const Tensor& out, Stream& stream) {
  require(x.contiguous() || (x.rank() <= 3 && x.stride(-1) == 1), "x of shape ",
          to_string(x.shape()), " has strides ", to_string(x.strides()),
          "; on a GPU it must be row-major, or of rank 2 or 3 with a last stride of 1");
  if (x.numel() == 0) return;
  DequantizeArgs args{scaled_codes(x), out.format(), {}, out.data<char>()};
  const auto bytes = [&](int64_t elements) { return elements * bits(x.format()) / 8; };
  if (x.contiguous()) {
    args.codes = {x.data<char>(), 1, bytes(args.columns), 0};
  } else {
    args.codes = {x.data<char>(), args.rows, x.rank() == 3 ? bytes(x.stride(0)) : 0,
                  x.rank() > 1 && args.rows > 1 ? bytes(x.stride(-2)) : 0};
  }
  dequantize_gpu(args, stream);
}

void dequantize_into(const Tensor& x, Tensor& result, Stream& stream) {
  require(x.defined(), "dequantize: x is undefined");
  require(result.defined() && is_plain_float(result.format()), "dequantize: out is ",
          name(result.format()), "; it must be f32, f16 or bf16");
  require(result.shape() == x.shape() && result.contiguous() && result.device() == x.device(),
          "dequantize: out ", to_string(result.shape()), " must be row-major, on ",
          x.device().name(), " and of x's shape ", to_string(x.shape()));
  const Format out = result.format();
  require(x.device() == stream.device(), "dequantize: x is on ", x.device().name(),
          " and the stream on ", stream.device().name(), "; both must be on the same device");
  require(is_quantised(x.format()), "dequantize: x is ", name(x.format()),
          ", which holds no quantised numbers");
  require(x.has_scales() || is_fp8(x.format()), "dequantize: x is ", name(x.format()),
          " without scales; attach them with Tensor::quantized");
  if (!x.device().is_cpu()) return expand_gpu(x, result, stream);
  if (x.numel() == 0) return;
  const int64_t columns = x.size(-1);
  const Tensor source =
      columns == 1 || x.stride(-1) == 1 ? x : x.contiguous_copy();  // refuses packed formats

  const float one = 1;
  Tensor scaled = source;
  if (!x.has_scales()) {  // plain fp8: one scale of 1
    Shape ones = x.shape();
    for (int i = 0; i < x.rank(); ++i) ones[i] = 1;
    scaled = source.quantized({Format::f32}, Tensor::copy_of(&one, sizeof one, ones, Format::f32));
  }
  const ScaleReader reader(scaled);
  const float factor = scaled.tensor_scale_value();
  // The vector kernels multiply twice, which rounds once only when the first product is exact:
  // elements of at most 8 bits by scales of at most 11, far from the ends of FP32.
  const Format scale_format = scaled.scaling().format;
  const bool exact =
      factor == 1.0f || scale_format == Format::fp8_e4m3 || scale_format == Format::f16;
  const FormatKernels& kernels = exact ? format_kernels() : scalar_format_kernels();
  const int64_t grain = std::max<int64_t>(1, piece_of(x.numel(), stream.pool().size()) / columns);
  const bool streamed = x.bytes() + result.bytes() >= kStreamFrom &&
                        columns * plain_bytes(out) % kLineBytes == 0 && starts_line(result.data());
  stream.pool().parallel_for(row_count(x), grain, [&](int64_t begin, int64_t end) {
    std::vector<float> scales(static_cast<size_t>(reader.groups()));
    std::vector<uint8_t> zeros(scaled.scaling().asymmetric ? scales.size() : 0);
    for (int64_t row = begin; row < end; ++row) {
      reader.read(row, 0, reader.groups(), scales.data(), zeros.data());
      const auto* codes =
          reinterpret_cast<const uint8_t*>(address(scaled, row_offset(scaled, row)));
      const RowScales parts{scales.data(), zeros.empty() ? nullptr : zeros.data(), reader.group(),
                            factor, streamed};
      kernels.dequantize_row(x.format(), codes, columns, parts, out,
                             result.data<char>() + row * columns * plain_bytes(out));
    }
    if (streamed) stream_fence();
  });
}

Tensor dequantize(const Tensor& x, Format out, Stream& stream) {
  require(x.defined(), "dequantize: x is undefined");
  require(is_plain_float(out), "dequantize: out is ", name(out), "; it must be f32, f16 or bf16");
  if (is_plain_float(x.format())) return convert(x, out, stream);
  Tensor result = Tensor::empty(x.shape(), out, x.device());
  dequantize_into(x, result, stream);
  return result;
}

}  // namespace halftone

#include <algorithm>
#include <vector>

#include "base/message.h"
#include "base/thread_pool.h"
#include "formats/kernels.h"
#include "formats/row_quantizer.h"
#include "formats/rows.h"
#include "formats/scale_layout.h"
#include "halftone/quantize.h"

namespace halftone {

namespace {

constexpr int64_t kPiece = 32768;  // elements of one piece of work, as in quantize.cpp

uint32_t load_scale(Format format, const char* scale) {
  switch (scale_bytes(format)) {
    case 4:
      return float_bits(*reinterpret_cast<const float*>(scale));
    case 2:
      return *reinterpret_cast<const uint16_t*>(scale);
    default:
      return static_cast<uint8_t>(*scale);
  }
}

// The scales of the groups of one row, decoded.
class ScaleReader {
 public:
  explicit ScaleReader(const Tensor& x)
      : x_(x),
        scaling_(x.scaling()),
        rows_(x.rank() > 1 ? x.size(-2) : 1),
        groups_(scaling_.block_cols > 0
                    ? (x.size(-1) + scaling_.block_cols - 1) / scaling_.block_cols
                    : 1) {}
  int64_t groups() const { return groups_; }
  int64_t group() const { return scaling_.block_cols > 0 ? scaling_.block_cols : x_.size(-1); }

  void read(int64_t row, float* scales, uint8_t* zeros) const {
    const Tensor& t = x_.scales();
    const int64_t width = scale_bytes(scaling_.format);
    if (scaling_.layout != ScaleLayout::linear) {
      const int64_t matrix = row / rows_;
      const char* base =
          t.data<char>() + matrix * scale_layout_bytes(scaling_.layout, rows_, groups_);
      for (int64_t g = 0; g < groups_; ++g) {
        const char* at = base + scale_offset(scaling_.layout, rows_, groups_, row % rows_, g);
        scales[g] = decode_scale(scaling_.format, load_scale(scaling_.format, at));
      }
      return;
    }
    const int64_t offset = scale_row_offset(t, x_.shape(), row, scaling_.block_rows);
    for (int64_t g = 0; g < groups_; ++g) {
      const char* at = t.data<char>() + (offset + g * t.stride(-1)) * width;
      scales[g] = decode_scale(scaling_.format, load_scale(scaling_.format, at));
    }
    if (!scaling_.asymmetric) return;
    const Tensor& z = x_.zero_points();
    const int64_t zero_offset = scale_row_offset(z, x_.shape(), row, scaling_.block_rows);
    for (int64_t g = 0; g < groups_; ++g) {
      zeros[g] = z.data<uint8_t>()[zero_offset + g * z.stride(-1)];
    }
  }

 private:
  const Tensor& x_;
  const Scaling& scaling_;
  int64_t rows_, groups_;
};

}  // namespace

Tensor dequantize(const Tensor& x, Format out, Stream& stream) {
  require(x.defined(), "dequantize: x is undefined");
  require(is_plain_float(out), "dequantize: out is ", name(out), "; it must be f32, f16 or bf16");
  require(x.device().is_cpu() && stream.device().is_cpu(), "dequantize: x is on ",
          x.device().name(), " and the stream on ", stream.device().name(),
          "; both must be on the CPU");
  if (is_plain_float(x.format())) return convert(x, out, stream);
  const bool known = std::find(std::begin(kElementFormats), std::end(kElementFormats),
                               x.format()) != std::end(kElementFormats);
  require(known, "dequantize: x is ", name(x.format()), ", which holds no quantised numbers");
  require(x.has_scales() || is_fp8(x.format()), "dequantize: x is ", name(x.format()),
          " without scales; attach them with Tensor::quantized");
  Tensor result = Tensor::empty(x.shape(), out);
  if (x.numel() == 0) return result;
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
  const int64_t grain = std::max<int64_t>(1, kPiece / columns);
  stream.pool().parallel_for(row_count(x), grain, [&](int64_t begin, int64_t end) {
    std::vector<float> scales(static_cast<size_t>(reader.groups()));
    std::vector<uint8_t> zeros(scaled.scaling().asymmetric ? scales.size() : 0);
    for (int64_t row = begin; row < end; ++row) {
      reader.read(row, scales.data(), zeros.data());
      const RowScales row_scales{scales.data(), zeros.empty() ? nullptr : zeros.data(),
                                 reader.group(), factor};
      kernels.dequantize_row(
          x.format(), reinterpret_cast<const uint8_t*>(address(scaled, row_offset(scaled, row))),
          columns, row_scales, out, result.data<char>() + row * columns * plain_bytes(out));
    }
  });
  return result;
}

}  // namespace halftone

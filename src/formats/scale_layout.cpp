#include "formats/scale_layout.h"

#include <algorithm>

#include "base/message.h"
#include "halftone/quantize.h"

namespace halftone {

int64_t scale_layout_bytes(ScaleLayout layout, int64_t rows, int64_t groups) {
  require(rows >= 0 && groups >= 0, "scale_layout_bytes: ", rows, " rows of ", groups,
          " groups; neither may be negative");
  // Padding is at most a factor of 512.
  require(rows < (int64_t{1} << 40) && groups < (int64_t{1} << 40) &&
              (rows == 0 || groups < (int64_t{1} << 52) / rows),
          "scale_layout_bytes: ", rows, " rows of ", groups, " groups are too many");
  const auto up = [](int64_t x, int64_t to) { return (x + to - 1) / to * to; };
  switch (layout) {
    case ScaleLayout::tiled_128x4:
      return up(rows, 128) * up(groups, 4);
    case ScaleLayout::tiled_8x4:
      return up(rows, 8) * up(groups, 4);
    case ScaleLayout::packed:
      return up(rows, 4) * up(groups, 4);
    case ScaleLayout::linear:
      break;
  }
  return rows * groups;
}

namespace {
void rearrange(const uint8_t* in, ScaleLayout from, uint8_t* out, ScaleLayout to, int64_t rows,
               int64_t groups) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      out[scale_offset(to, rows, groups, row, group)] =
          in[scale_offset(from, rows, groups, row, group)];
    }
  }
}
}  // namespace

void linear_scales(const uint8_t* in, ScaleLayout from, int64_t rows, int64_t groups, int64_t begin,
                   int64_t end, uint8_t* out) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      out[row * groups + group] = in[scale_offset(from, rows, groups, row, group)];
    }
  }
}

Tensor convert_scale_layout(const Tensor& scales, int64_t rows, int64_t groups, ScaleLayout from,
                            ScaleLayout to) {
  require(scales.defined() && scales.device().is_cpu(),
          "convert_scale_layout: scales must be a tensor on the CPU");
  require(bits(scales.format()) == 8, "convert_scale_layout: scales are ", name(scales.format()),
          "; layouts arrange one-byte codes (ue8m0, fp8_e4m3, u8)");
  const int64_t bytes = scale_layout_bytes(from, rows, groups);
  require(scales.numel() == bytes, "convert_scale_layout: scales ", to_string(scales.shape()),
          " hold ", scales.numel(), " codes; ", rows, " rows of ", groups, " groups take ", bytes,
          " in the layout ", name(from));
  const Tensor flat = scales.contiguous() ? scales : scales.contiguous_copy();
  const Shape shape =
      to == ScaleLayout::linear ? Shape{rows, groups} : Shape{scale_layout_bytes(to, rows, groups)};
  Tensor result = Tensor::zeros(shape, scales.format());
  rearrange(flat.data<uint8_t>(), from, result.data<uint8_t>(), to, rows, groups);
  return result;
}

Tensor with_linear_scales(const Tensor& x) {
  if (!x.has_scales() || x.scaling().layout == ScaleLayout::linear) return x;
  require(x.device().is_cpu(), "with_linear_scales: x is on ", x.device().name(),
          "; it must be on the CPU");
  Scaling scaling = x.scaling();
  const int64_t rows = x.rank() > 1 ? x.size(-2) : 1;
  const int64_t groups = (x.size(-1) + scaling.block_cols - 1) / scaling.block_cols;
  Shape shape = x.shape();
  shape[x.rank() - 1] = groups;
  const Tensor scales = Tensor::empty(shape, scaling.format);
  const int64_t bytes = scale_layout_bytes(scaling.layout, rows, groups);
  for (int64_t i = 0; i < scales.numel() / std::max<int64_t>(rows * groups, 1); ++i) {
    rearrange(x.scales().data<uint8_t>() + i * bytes, scaling.layout,
              scales.data<uint8_t>() + i * rows * groups, ScaleLayout::linear, rows, groups);
  }
  scaling.layout = ScaleLayout::linear;
  return x.quantized(scaling, scales, x.tensor_scale());
}

}  // namespace halftone

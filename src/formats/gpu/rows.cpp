#include "formats/gpu/rows.h"

#include "base/message.h"

namespace halftone {

ScaledCodes scaled_codes(const Tensor& x) {
  ScaledCodes codes;
  codes.format = x.format();
  codes.columns = x.rank() > 0 ? x.size(-1) : 1;
  codes.rows = x.rank() > 1 ? x.size(-2) : 1;
  codes.matrices = x.numel() == 0 ? 0 : x.numel() / (codes.rows * codes.columns);
  if (!x.has_scales() || x.numel() == 0) return codes;
  const Scaling& scaling = x.scaling();
  codes.scale_format = scaling.format;
  codes.block_rows = scaling.block_rows, codes.block_columns = scaling.block_cols;
  codes.layout = scaling.layout;
  codes.scales = x.scales().data<char>();
  if (x.tensor_scale().defined()) codes.tensor_scale = x.tensor_scale().data<float>();
  const auto strides = [&](const Tensor& t, int64_t* matrix, int64_t* row, int64_t* column) {
    require(x.rank() <= 3 || t.contiguous(), "the scales of x, ", to_string(t.shape()),
            ", have strides; on a GPU they must be row-major");
    *column = t.size(-1) == 1 ? 0 : t.stride(-1);
    *row = t.rank() > 1 && t.size(-2) != 1 ? t.stride(-2) : 0;
    const int64_t matrices = t.rank() > 2 ? t.numel() / (t.size(-1) * t.size(-2)) : 1;
    require(matrices == 1 || matrices == codes.matrices, "the scales of x, ", to_string(t.shape()),
            ", repeat over some of its matrices ", to_string(x.shape()));
    *matrix = matrices == 1 ? 0 : t.stride(-3);
  };
  if (scaling.layout == ScaleLayout::linear) {
    strides(x.scales(), &codes.scale_matrix, &codes.scale_row, &codes.scale_column);
  } else {
    codes.scale_matrix = x.scales().bytes() / codes.matrices;
  }
  if (scaling.asymmetric) {
    codes.zeros = x.zero_points().data<uint8_t>();
    strides(x.zero_points(), &codes.zero_matrix, &codes.zero_row, &codes.zero_column);
  }
  return codes;
}

NumberRows number_rows(const Tensor& x) {
  NumberRows rows;
  rows.codes = scaled_codes(x);
  rows.base = x.data<char>();
  const auto bytes = [&](int64_t elements) { return elements * bits(x.format()) / 8; };
  const bool single = rows.codes.columns == 1;
  rows.step = bits(x.format()) < 8 ? 0 : bytes(single ? 1 : x.stride(-1));
  for (int d = 0; d + 1 < x.rank(); ++d) {
    if (x.size(d) == 1) continue;
    const int64_t stride = bytes(x.stride(d));
    int& n = rows.dimensions;
    if (n > 0 && rows.stride[n - 1] == stride * x.size(d)) {
      rows.extent[n - 1] *= x.size(d);
    } else {
      rows.extent[n++] = x.size(d);
    }
    rows.stride[n - 1] = stride;
  }
  return rows;
}

}  // namespace halftone

// The scales of a quantised tensor, row by row, in any layout.
#pragma once
#include <algorithm>
#include <cstring>

#include "formats/kernels.h"
#include "formats/row_quantizer.h"
#include "formats/rows.h"
#include "formats/scale_layout.h"
#include "halftone/quantize.h"

namespace halftone {

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

  // Groups [first, first + count) of a row; zeros only of asymmetric formats.
  void read(int64_t row, int64_t first, int64_t count, float* scales, uint8_t* zeros) const {
    const FormatKernels& kernels = format_kernels();
    const Tensor& t = x_.scales();
    const bool linear = scaling_.layout == ScaleLayout::linear;
    const int64_t offset =
        linear ? scale_row_offset(t, x_.shape(), row, scaling_.block_rows) : int64_t{0};
    if (linear && (t.stride(-1) == 1 || count == 1)) {
      const char* from = address(t, offset + first * t.stride(-1));
      kernels.decode_scales(scaling_.format, from, count, scales);
    } else {
      const int64_t width = scale_bytes(scaling_.format);
      const char* matrix = t.data<char>();
      if (!linear) matrix += row / rows_ * scale_layout_bytes(scaling_.layout, rows_, groups_);
      constexpr int64_t kAtOnce = 256;
      char codes[kAtOnce * 4];
      for (int64_t done = 0; done < count; done += kAtOnce) {
        const int64_t n = std::min(kAtOnce, count - done);
        for (int64_t g = 0; g < n; ++g) {
          const int64_t group = first + done + g;
          const int64_t at =
              linear ? (offset + group * t.stride(-1)) * width
                     : scale_offset(scaling_.layout, rows_, groups_, row % rows_, group);
          std::memcpy(codes + g * width, matrix + at, static_cast<size_t>(width));
        }
        kernels.decode_scales(scaling_.format, codes, n, scales + done);
      }
    }
    if (!scaling_.asymmetric) return;
    const Tensor& z = x_.zero_points();
    const int64_t zero_offset = scale_row_offset(z, x_.shape(), row, scaling_.block_rows);
    for (int64_t g = 0; g < count; ++g) {
      zeros[g] = z.data<uint8_t>()[zero_offset + (first + g) * z.stride(-1)];
    }
  }

 private:
  const Tensor& x_;
  const Scaling& scaling_;
  int64_t rows_, groups_;
};

}  // namespace halftone

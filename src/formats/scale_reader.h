// The scales of a quantised tensor, row by row, in any layout.
#pragma once
#include "formats/recipe.h"
#include "formats/row_quantizer.h"
#include "formats/rows.h"
#include "formats/scale_layout.h"
#include "halftone/quantize.h"

namespace halftone {

inline uint32_t load_scale(Format format, const char* scale) {
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

  // Groups [first, first + count) of a row; zeros only of asymmetric formats.
  void read(int64_t row, int64_t first, int64_t count, float* scales, uint8_t* zeros) const {
    const Tensor& t = x_.scales();
    const int64_t width = scale_bytes(scaling_.format);
    if (scaling_.layout != ScaleLayout::linear) {
      const int64_t matrix = row / rows_;
      const char* base =
          t.data<char>() + matrix * scale_layout_bytes(scaling_.layout, rows_, groups_);
      for (int64_t g = 0; g < count; ++g) {
        const char* at =
            base + scale_offset(scaling_.layout, rows_, groups_, row % rows_, first + g);
        scales[g] = decode_scale(scaling_.format, load_scale(scaling_.format, at));
      }
      return;
    }
    const int64_t offset = scale_row_offset(t, x_.shape(), row, scaling_.block_rows);
    for (int64_t g = 0; g < count; ++g) {
      const char* at = t.data<char>() + (offset + (first + g) * t.stride(-1)) * width;
      scales[g] = decode_scale(scaling_.format, load_scale(scaling_.format, at));
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

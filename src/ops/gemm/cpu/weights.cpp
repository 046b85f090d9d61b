#include "ops/gemm/cpu/weights.h"

#include <algorithm>
#include <vector>

#include "base/bf16_dots.h"
#include "base/message.h"
#include "formats/codec.h"
#include "formats/kernels.h"
#include "formats/row_quantizer.h"
#include "ops/gemm/cpu/kernel_sets.h"

namespace halftone::gemm {

namespace {

// Rows whose scale spans K and that still have zero points use the path of scales within the row.
constexpr int64_t kWholeRow = int64_t{1} << 40;  // a multiple of every chunk

const uint8_t* scale_address(const Weights& w, int64_t n, int64_t k) {
  return w.scales + (w.block_rows > 0 ? n / w.block_rows * w.scale_row : 0) +
         (w.group > 0 ? k / w.group * w.scale_step : 0);
}

// The value in the tensor's format, without its scale.
float element(const Weights& w, int64_t n, int64_t k) {
  const uint8_t* row = w.data + n * w.row_bytes;
  int zero = kInt4Zero;
  if (w.zeros != nullptr) {
    zero =
        w.zeros[(w.block_rows > 0 ? n / w.block_rows * w.zero_row : 0) + k / w.group * w.zero_step];
  }
  return element_at(w.format, row, k, zero);
}

// FP32 rows of a `dequantised` weight: value times scale, rounded once.
void dequantise_row(const Weights& w, int64_t n, int64_t k0, int64_t count, float* out) {
  // Blocks side by side, from the start of one on: in vectors, with the same roundings.
  if (has_group_scales(w.format) && w.scale_step == 1 && w.group > 0 && k0 % w.group == 0) {
    constexpr int64_t kScales = 64;
    float scales[kScales];
    const int64_t most = kScales * w.group;
    for (int64_t i = 0; i < count; i += most) {
      const int64_t here = std::min(most, count - i), groups = ceil_div(here, w.group);
      const FormatKernels& kernels = format_kernels();
      kernels.decode_scales(w.scale_format, scale_address(w, n, k0 + i), groups, scales);
      const RowScales row{scales, nullptr, w.group, 1.0f};
      kernels.dequantize_row(w.format, w.data + n * w.row_bytes + code_offset(w.format, k0 + i),
                             here, row, Format::f32, out + i);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const float scale =
        w.scales != nullptr ? read_scale(w.scale_format, scale_address(w, n, k0 + i)) : 1.0f;
    out[i] = element(w, n, k0 + i) * scale;
  }
}

bool is_scale_format(Format f) {
  return is_plain_float(f) || f == Format::fp8_e4m3 || f == Format::ue8m0;
}

}  // namespace

Code code_of(Format format, bool scaled, const Scaling& scaling) {
  // A lane holds 8 or 16 elements of K that follow one another, which must share a scale.
  if (scaled && scaling.block_cols % 16 != 0) return Code::dequantised;
  switch (element_of(format)) {
    case Element::f32:
      return scaled ? Code::dequantised : Code::f32;
    case Element::f16:
      return scaled ? Code::dequantised : Code::f16;
    case Element::bf16:
      return scaled ? Code::dequantised : Code::bf16;
    case Element::e4m3:
      return Code::e4m3;
    case Element::e5m2:
      return Code::e5m2;
    case Element::int8:
      return scaled && scaling.block_cols > 0 ? Code::int8 : Code::int8_rows;
    case Element::e2m1:
      return Code::e2m1;
    case Element::int4:
      return scaled && scaling.asymmetric ? Code::int4_asymmetric : Code::int4;
    default:
      return Code::dequantised;
  }
}

std::string refuse_weight(Format format, bool scaled, const Scaling& scaling, int64_t n,
                          int64_t k) {
  const char* name = halftone::name(format);
  if (is_integer_index(format) || format == Format::u8 || format == Format::ue8m0) {
    return concat("weight format is ", name,
                  "; it must be a float, fp8, block, int8 or int4 format");
  }
  if (n < 1 || k < 1)
    return concat("weight is [", n, ", ", k, "]; both extents must be at least 1");
  if (k % elements_of_unit(format) != 0) {
    return concat("weight format ", name, " with K = ", k, ": K must be ",
                  elements_of_unit(format) == 2 ? "even, two codes a byte"
                                                : "a multiple of 4, which fill three bytes");
  }
  if (!scaled) {
    if (is_block(format)) return concat("weight format ", name, " has no scales; attach them");
    return "";
  }
  if (!is_scale_format(scaling.format)) {
    return concat("weight scales are ", halftone::name(scaling.format),
                  "; they must be f32, f16, bf16, fp8_e4m3 or ue8m0");
  }
  if (scaling.layout != ScaleLayout::linear &&
      (bits(scaling.format) != 8 || scaling.block_rows != 1 || scaling.block_cols < 1)) {
    return concat("weight scales are in layout ", halftone::name(scaling.layout),
                  ", which arranges one-byte scales of single rows, not ", to_string(scaling));
  }
  if (scaling.block_rows < 0 || scaling.block_cols < 0) {
    return concat("weight scale block is ", scaling.block_rows, "x", scaling.block_cols,
                  "; extents must not be negative");
  }
  if (scaling.asymmetric && !may_have_zero_points(format)) {
    return concat("weight format ", name, " has zero points; only int4 has them");
  }
  if ((is_block(format) || format == Format::int4) && scaling.block_cols > 0 &&
      k % scaling.block_cols != 0) {
    return concat("weight format ", name, " with K = ", k, ": K must be a multiple of the group, ",
                  scaling.block_cols);
  }
  return "";
}

std::string refuse_bf16(Format x, Format weight, bool scaled, const Scaling& scaling) {
  if (x != Format::bf16) return concat("x is ", name(x), "; the bf16 dot kernels take bf16");
  if (multiply_bf16_in_f32()) {
    return "bf16 is multiplied in f32, which is faster on this processor; HALFTONE_BF16=dot takes "
           "the bf16 dot kernels all the same";
  }
  if (scaled && scaling.block_cols % 16 != 0) {
    return concat("weight scales have groups of ", scaling.block_cols,
                  "; the bf16 dot kernels take multiples of 16");
  }
  const Code code = code_of(weight, scaled, scaling);
  if (code == Code::f32 || code == Code::f16 || code == Code::dequantised) {
    return concat("weight format ", name(weight), " does not expand to bf16 exactly");
  }
  return "";
}

std::string refuse_int8(Format weight, bool scaled, const Scaling& scaling, int64_t k) {
  if (weight != Format::int8) return concat("weight format is ", name(weight), ", not int8");
  if (scaled && scaling.block_cols > 0) {
    return concat("weight scales have groups of ", scaling.block_cols,
                  "; integer sums take one scale a row");
  }
  if (k >= int64_t{1} << 17) return concat("K is ", k, "; integer sums take less than 131072");
  return "";
}

Weights view_of(const Tensor& weight, const char* name, int64_t matrix, const uint8_t* tiled) {
  Weights w;
  w.n = weight.size(-2);
  w.k = weight.size(-1);
  w.format = weight.format();
  require(weight.stride(-1) == 1 || w.k == 1, name, " has strides ", shown(weight.strides()),
          "; its last dimension must be contiguous");
  const int64_t row_bits = weight.stride(-2) * bits(w.format);
  require(row_bits % 8 == 0 || w.n == 1, name, " has strides ", shown(weight.strides()),
          "; rows must start at whole bytes");
  w.row_bytes = row_bits / 8;
  w.data = weight.data<uint8_t>();
  if (matrix > 0) w.data += matrix * weight.stride(0) * bits(w.format) / 8;
  if (!weight.has_scales()) {
    w.code = code_of(w.format, false, {});
    return w;
  }
  const Scaling& scaling = weight.scaling();
  w.code = code_of(w.format, true, scaling);
  w.tensor_scale = weight.tensor_scale_value();
  w.scale_format = scaling.format;
  w.block_rows = scaling.block_rows;
  w.group = scaling.block_cols;
  w.dequantise = dequantise_row;
  if (scaling.layout != ScaleLayout::linear) {
    w.scales = tiled;
    w.scale_row = ceil_div(w.k, w.group);
    w.scale_step = 1;
    return w;
  }
  const auto matrix_of = [&](const Tensor& t) {
    return matrix > 0 && t.size(0) > 1 ? matrix * t.stride(0) : 0;
  };
  const Tensor& scales = weight.scales();
  const int64_t size = bits(scaling.format) / 8;
  w.scales = scales.data<uint8_t>() + matrix_of(scales) * size;
  w.scale_row = scales.stride(-2) * size;
  w.scale_step = scales.stride(-1) * size;
  if (scaling.asymmetric) {
    const Tensor& zeros = weight.zero_points();
    require(zeros.format() == Format::u8, name, " has ", halftone::name(zeros.format()),
            " zero points; they must be u8");
    w.zeros = zeros.data<uint8_t>() + matrix_of(zeros);
    w.zero_row = zeros.stride(-2);
    w.zero_step = zeros.stride(-1);
    if (w.group == 0) w.group = kWholeRow;
  }
  return w;
}

bool can_take_rows(const Weights& w, int64_t first, int64_t step) {
  if (w.scales == nullptr || w.block_rows <= 1) return true;
  return step == 1 ? first % w.block_rows == 0 : w.block_rows % 2 == 0 && first < 2;
}

Weights take_rows(Weights w, int64_t first, int64_t step, int64_t n) {
  w.data += first * w.row_bytes;
  w.row_bytes *= step;
  w.n = n;
  if (w.scales == nullptr || w.block_rows == 0) return w;
  const int64_t block_row = first / w.block_rows;
  w.scales += block_row * w.scale_row;
  if (w.zeros != nullptr) w.zeros += block_row * w.zero_row;
  if (step == 1) return w;
  if (w.block_rows == 1) {
    w.scale_row *= step;
    w.zero_row *= step;
  } else {
    w.block_rows /= step;
  }
  return w;
}

void weight_row(const Weights& w, int64_t n, double* out) {
  for (int64_t k = 0; k < w.k; ++k) {
    double scale = w.tensor_scale;
    if (w.scales != nullptr) scale *= read_scale(w.scale_format, scale_address(w, n, k));
    out[k] = scale * element(w, n, k);
  }
}

float row_scale(const Weights& w, int64_t n) {
  if (w.scales == nullptr || w.group > 0 || w.code == Code::dequantised) return w.tensor_scale;
  return read_scale(w.scale_format, scale_address(w, n, 0)) * w.tensor_scale;
}

}  // namespace halftone::gemm

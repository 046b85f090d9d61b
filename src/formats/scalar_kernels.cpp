// The row operations one element at a time: what every ISA level must reproduce.
#include "formats/kernels.h"
#include "formats/row_quantizer.h"

namespace halftone {

namespace {

float load(Format format, const void* x, int64_t i) {
  switch (format) {
    case Format::f16:
      return decode_f16(static_cast<const uint16_t*>(x)[i]);
    case Format::bf16:
      return decode_bf16(static_cast<const uint16_t*>(x)[i]);
    default:
      return static_cast<const float*>(x)[i];
  }
}

struct ScalarOps {
  static uint32_t amax(Format source, const void* x, int64_t n) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t magnitude = float_bits(load(source, x, i)) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
  }

  static void range(Format source, const void* x, int64_t n, float* low, float* high) {
    *low = *high = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float value = load(source, x, i);
      *low = value < *low ? value : *low;
      *high = value > *high ? value : *high;
    }
  }

  static void encode(Format source, Format target, const void* x, int64_t n, float multiplier,
                     int zero, uint8_t* codes) {
    uint32_t word = 0;  // codes, of which some bits have not been written yet
    int held = 0;
    for (int64_t i = 0; i < n; ++i) {
      word |= uint32_t{encode_element(target, load(source, x, i) * multiplier, zero)} << held;
      held += bits_of(target);
      for (; held >= 8; held -= 8, word >>= 8) *codes++ = static_cast<uint8_t>(word);
    }
    if (held > 0) *codes = static_cast<uint8_t>(word);
  }

  static void encode_block(const Recipe& recipe, Format source, const void* x, int64_t n,
                           float multiplier, int zero, uint8_t* codes) {
    encode(source, recipe.format, x, n, multiplier, zero, codes);
  }
  static double squared_error(Format source, Format target, const void* x, int64_t n,
                              float multiplier, int zero, float scale, float tensor_scale) {
    double partial[16] = {};
    for (int64_t i = 0; i < n; ++i) {
      const float value = load(source, x, i);
      const uint8_t code = encode_element(target, value * multiplier, zero);
      const double decoded =
          static_cast<double>(decode_element(target, code, zero)) * scale * tensor_scale;
      const double difference = value - decoded;
      partial[i % 16] += difference * difference;
    }
    for (int width = 8; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) partial[i] += partial[i + width];
    }
    return partial[0];
  }
};

// A float that rounds to fewer bits as x does: when x lies between two floats, the one whose last
// bit is 1.
float round_to_odd(long double x) {
  const float nearest = static_cast<float>(x);
  if (nearest == x || x != x) return nearest;
  uint32_t u = float_bits(nearest);
  const long double magnitude = x < 0 ? -x : x;
  if (bits_float(u & 0x7fffffffu) > magnitude) --u;
  return bits_float(u | 1);
}

bool quantize_row(const Recipe& recipe, Format source, const void* x, int64_t columns,
                  uint8_t* codes, uint8_t* scales, uint8_t* zeros) {
  return quantize_row_with<ScalarOps>(recipe, source, x, columns, codes, scales, zeros);
}

bool quantize_band(const Recipe& recipe, Format source, const Band& band) {
  const int64_t group = recipe.group > 0 ? recipe.group : band.columns;
  bool fits = true;
  for (int64_t begin = 0; begin < band.columns; begin += group) {
    const int64_t n = group < band.columns - begin ? group : band.columns - begin;
    const char* x = band.x + begin * plain_bytes(source);
    uint32_t amax = 0;
    for (int64_t row = 0; row < band.rows; ++row) {
      const uint32_t of_row = ScalarOps::amax(source, x + row * band.stride, n);
      amax = of_row > amax ? of_row : amax;
    }
    const bool finite = amax < kInfinityBits;
    const BlockScale scale = finite ? block_scale(recipe, amax) : poisoned_scale(recipe);
    fits &= !finite || scale.value < bits_float(kInfinityBits);
    store_scale(recipe.scale_format, band.scales, begin / group, scale.code);
    for (int64_t row = 0; row < band.rows; ++row) {
      uint8_t* codes = band.codes + row * band.codes_stride + begin;
      if (finite) {
        ScalarOps::encode(source, recipe.format, x + row * band.stride, n, scale.multiplier,
                          kInt4Zero, codes);
      } else {
        std::memset(codes, 0, static_cast<size_t>(n));
      }
    }
  }
  return fits;
}

void dequantize_row(Format format, const uint8_t* codes, int64_t columns, const RowScales& row,
                    Format out, void* y) {
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t g = i / row.group;
    const uint8_t code = code_at(format, codes, i);
    const int zero = row.zeros != nullptr ? row.zeros[g] : kInt4Zero;
    // 8 + 24 + 24 bits fit the 64 of x87; where long double is double, 24 bits of scale and
    // tensor scale together do not, and neither does any format that quantize makes need them.
    const long double exact =
        static_cast<long double>(decode_element(format, code, zero)) * row.scales[g] * row.factor;
    switch (out) {
      case Format::f16:
        static_cast<uint16_t*>(y)[i] = encode_f16(round_to_odd(exact));
        break;
      case Format::bf16:
        static_cast<uint16_t*>(y)[i] = encode_bf16(round_to_odd(exact));
        break;
      default:
        static_cast<float*>(y)[i] = static_cast<float>(exact);
    }
  }
}

void decode_scales(Format format, const void* codes, int64_t n, float* scales) {
  for (int64_t i = 0; i < n; ++i) {
    scales[i] = decode_scale(format, load_scale(format, codes, i));
  }
}

void encode_ue8m0(const float* x, int64_t n, bool down, uint8_t* codes) {
  for (int64_t i = 0; i < n; ++i) {
    codes[i] = down ? encode_ue8m0_down(x[i]) : encode_ue8m0_up(x[i]);
  }
}

void decode_bf16(Format format, const uint8_t* codes, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = encode_bf16(decode_element(format, code_at(format, codes, i), kInt4Zero));
  }
}

void convert(Format source, Format out, const void* x, int64_t n, void* y) {
  for (int64_t i = 0; i < n; ++i) {
    const float value = load(source, x, i);
    switch (out) {
      case Format::f16:
        static_cast<uint16_t*>(y)[i] = encode_f16(value);
        break;
      case Format::bf16:
        static_cast<uint16_t*>(y)[i] = encode_bf16(value);
        break;
      default:
        static_cast<float*>(y)[i] = value;
    }
  }
}

constexpr FormatKernels kScalar = {ScalarOps::amax, ScalarOps::encode,
                                   encode_ue8m0,    ScalarOps::squared_error,
                                   quantize_row,    quantize_band,
                                   dequantize_row,  decode_scales,
                                   decode_bf16,     convert};

}  // namespace

const FormatKernels& scalar_format_kernels() { return kScalar; }

}  // namespace halftone

// The row operations in vectors, compiled once per instruction level.
#include "formats/kernels.h"
#include "formats/vector_encode.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

struct VectorOps {
  static uint32_t amax(Format source, const void* x, int64_t n) {
    return with_source(
        source, [&]<Format S>() __attribute__((always_inline)) {
          return largest_lane(amax_lanes<S>(x, 0, n));
        });
  }

  static void range(Format source, const void* x, int64_t n, float* low, float* high) {
    f32v least{}, largest{};
    with_source(
        source, [&]<Format S>() __attribute__((always_inline)) {
          for (int64_t i = 0; i < n; i += kLanes) {
            const int64_t left = n - i;
            const f32v v =
                left >= kLanes ? load<S>(x, i) : load_partial<S>(x, i, static_cast<int>(left));
            least = min(v, least);
            largest = max(v, largest);
          }
        });
    *low = -reduce_max(-least);
    *high = reduce_max(largest);
  }

  static void encode(Format source, Format target, const void* x, int64_t n, float multiplier,
                     int zero, uint8_t* codes) {
    with_source(
        source, [&]<Format S>() __attribute__((always_inline)) {
          with_element(
              target, [&]<Format T>() __attribute__((always_inline)) {
                encode_run<S, T>(x, 0, n, multiplier, zero, codes);
              });
        });
  }

  static double squared_error(Format source, Format target, const void* x, int64_t n,
                              float multiplier, int zero, float scale, float tensor_scale) {
    return with_source(
        source, [&]<Format S>() __attribute__((always_inline)) {
          return with_element(
              target, [&]<Format T>() __attribute__((always_inline)) {
                return error_run<S, T>(x, n, multiplier, zero, scale, tensor_scale);
              });
        });
  }
};

// --- groups, kLanes at a time --------------------------------------------------------------------

// Scales of kLanes blocks: recipe.h's block_scale with a lane per block.
struct Scales {
  u32v code;
  f32v value, multiplier;
};

HALFTONE_INLINE Scales scales_of_codes(const Recipe& recipe, u32v code, f32v value) {
  if (recipe.format == Format::nvfp4) {
    const f32v inverse = 1.0f / (value * recipe.decode_scale);
    return {code, value, min(inverse, broadcast(kFloatMax))};
  }
  return {code, value, 1.0f / value};
}

HALFTONE_INLINE Scales block_scales(const Recipe& recipe, u32v amax) {
  const f32v largest = bits_as<f32v>(amax);
  const i32v zero = bits_as<i32v>(amax) == i32v{};
  if (recipe.scale_format == Format::ue8m0) {
    const bool e5m2 = recipe.format == Format::fp8_e5m2;
    const bool e2m1 = largest_element(recipe.format) == kE2m1Max;
    const int element_exponent = e5m2 ? 15 : e2m1 ? 2 : 8;
    // Rounding up: past 1.75 (1.5 for E2M1) the mantissa carries into the exponent.
    const int carry = recipe.ue8m0_down ? 0 : 0x7fffff - (e2m1 ? 0x400000 : 0x600000);
    i32v code = ((bits_as<i32v>(amax) + carry) >> 23) - element_exponent;
    code = max(code, i32v{});
    const i32v inverse = 254 - code;
    const u32v bits = bits_as<u32v>(inverse << 23);
    const i32v subnormal = inverse == i32v{};
    return {bits_as<u32v>(code), f32v{},
            bits_as<f32v>(pick(subnormal, broadcast_u32(0x400000), bits))};
  }
  if (recipe.format == Format::nvfp4) {
    const u32v code = encode_e4m3(largest * (recipe.encode_scale * (1.0f / 6.0f)));
    Scales scales = scales_of_codes(recipe, code, decode_e4m3(__builtin_convertvector(code, u8v)));
    scales.multiplier = pick(zero, f32v{}, scales.multiplier);
    return scales;
  }
  const f32v wanted = pick(zero, broadcast(1.0f), largest / largest_element(recipe.format));
  if (recipe.scale_format == Format::f16) {
    const u16v code = narrow_f16(max(wanted, broadcast(0x1p-24f)));
    return scales_of_codes(recipe, __builtin_convertvector(code, u32v), widen_f16(code));
  }
  const f32v clamped = max(wanted, broadcast(0x1p-126f));
  if (recipe.scale_format == Format::bf16) {
    const u16v code = narrow_bf16(clamped);
    return scales_of_codes(recipe, __builtin_convertvector(code, u32v), widen_bf16(code));
  }
  return scales_of_codes(recipe, bits_as<u32v>(clamped), clamped);
}

HALFTONE_INLINE void store_scales(Format format, uint8_t* to, u32v codes) {
  switch (scale_bytes(format)) {
    case 4:
      store_raw(to, codes);
      break;
    case 2:
      store_raw(to, __builtin_convertvector(codes, u16v));
      break;
    default:
      store_raw(to, __builtin_convertvector(codes, u8v));
  }
}

// kLanes whole groups of finite numbers; false, having written nothing, when one is not finite or
// a scale overflows: the general path knows what to do.
template <Format S, Format T>
HALFTONE_INLINE bool quantize_groups(const Recipe& recipe, const void* x, int64_t begin,
                                     uint8_t* codes, uint8_t* scales) {
  const int64_t group = recipe.group;
  uint32_t amax[kLanes];
  for (int g = 0; g < kLanes; ++g) {
    amax[g] = largest_lane(amax_lanes<S>(x, begin + g * group, group));
  }
  const u32v all = load_raw<u32v>(amax);
  if (largest_lane(all) >= kInfinityBits) return false;
  const Scales of = block_scales(recipe, all);
  if (recipe.scale_format == Format::f16 &&
      largest_lane(bits_as<u32v>(of.value)) >= kInfinityBits) {
    return false;
  }
  store_scales(recipe.scale_format, scales, of.code);
  float multiplier[kLanes];
  store_raw(multiplier, of.multiplier);
  for (int g = 0; g < kLanes; ++g) {
    encode_run<S, T>(x, begin + g * group, group, multiplier[g], kInt4Zero,
                     codes + (is_four_bits(T) ? g * group / 2 : g * group));
  }
  return true;
}

bool quantize_row(const Recipe& recipe, Format source, const void* x, int64_t columns,
                  uint8_t* codes, uint8_t* scales, uint8_t* zeros) {
  const bool packed = is_four_bits(recipe.format);
  const auto general = [&](int64_t begin, int64_t n) {
    const int64_t g = recipe.group > 0 ? begin / recipe.group : 0;
    return quantize_row_with<VectorOps>(
        recipe, source, static_cast<const char*>(x) + begin * plain_bytes(source), n,
        codes + (packed ? begin / 2 : begin), scales + g * scale_bytes(recipe.scale_format),
        zeros + (zeros != nullptr ? g : 0));
  };
  const int64_t strip = recipe.group * kLanes;
  if (recipe.adaptive || recipe.asymmetric || strip == 0 || recipe.group % kLanes != 0) {
    return general(0, columns);
  }
  const int64_t whole = columns / strip * strip;
  bool fits = true;
  with_source(
      source, [&]<Format S>() __attribute__((always_inline)) {
        with_element(
            recipe.format, [&]<Format T>() __attribute__((always_inline)) {
              for (int64_t begin = 0; begin < whole; begin += strip) {
                uint8_t* to = codes + (is_four_bits(T) ? begin / 2 : begin);
                uint8_t* scales_to =
                    scales + begin / recipe.group * scale_bytes(recipe.scale_format);
                if (!quantize_groups<S, T>(recipe, x, begin, to, scales_to)) {
                  fits &= general(begin, strip);
                }
              }
            });
      });
  return whole < columns ? general(whole, columns - whole) && fits : fits;
}

// --- the way back --------------------------------------------------------------------------------

// Whether a float that was itself rounded may lie midway between two numbers of the output.
template <Format O>
HALFTONE_INLINE bool any_midway(f32v x) {
  if constexpr (O == Format::f32) return false;
  const i32v bits = bits_as<i32v>(x) & 0x7fffffff;
  if constexpr (O == Format::bf16) {
    return largest_lane(bits_as<u32v>((bits & 0xffff) == broadcast_i32(0x8000))) != 0;
  } else {  // below 2^-14 the spacing changes: those all count
    const i32v small = (bits < broadcast_i32(0x38800000)) & (bits != i32v{});
    return largest_lane(bits_as<u32v>(((bits & 0x1fff) == broadcast_i32(0x1000)) | small)) != 0;
  }
}

template <Format F, Format O>
HALFTONE_INLINE void dequantize_run(Format format, const uint8_t* codes, int64_t columns,
                                    const RowScales& row, void* y) {
  constexpr int kPerByte = is_four_bits(F) ? 2 : 1;
  for (int64_t begin = 0, g = 0; begin < columns; begin += row.group, ++g) {
    const int64_t end = row.group < columns - begin ? begin + row.group : columns;
    const f32v scale = broadcast(row.scales[g]), factor = broadcast(row.factor);
    const int zero = row.zeros != nullptr ? row.zeros[g] : kInt4Zero;
    const auto exactly = [&](int64_t i, int64_t n) {
      const RowScales one{row.scales + g, row.zeros != nullptr ? row.zeros + g : nullptr, n,
                          row.factor};
      scalar_format_kernels().dequantize_row(format, codes + i / kPerByte, n, one, O,
                                             static_cast<char*>(y) + i * plain_bytes(O));
    };
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      f32v v;
      if constexpr (F == Format::int4) {
        v = decode_int4(codes, i, zero);
      } else {
        v = decode<F>(codes, i);
      }
      v = v * scale * factor;
      if (any_midway<O>(v)) [[unlikely]] {
        exactly(i, kLanes);
      } else {
        store<O>(y, i, v);
      }
    }
    if (i < end) exactly(i, end - i);
  }
}

void dequantize_row(Format format, const uint8_t* codes, int64_t columns, const RowScales& row,
                    Format out, void* y) {
  if (is_four_bits(format) && row.group % 2 != 0 && row.group < columns) {
    return scalar_format_kernels().dequantize_row(format, codes, columns, row, out, y);
  }
  with_element(
      format, [&]<Format F>() __attribute__((always_inline)) {
        with_source(
            out, [&]<Format O>() __attribute__((always_inline)) {
              dequantize_run<F, O>(format, codes, columns, row, y);
            });
      });
}

void encode_ue8m0(const float* x, int64_t n, bool down, uint8_t* codes) {
  const auto encode = [down](f32v v) __attribute__((always_inline)) {
    const u32v code = down ? encode_ue8m0_down(v) : encode_ue8m0_up(v);
    return __builtin_convertvector(code, u8v);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_raw(codes + i, encode(load<Format::f32>(x, i)));
  if (i == n) return;
  const int left = static_cast<int>(n - i);
  uint8_t bytes[kLanes];
  store_raw(bytes, encode(load_partial<Format::f32>(x, i, left)));
  std::memcpy(codes + i, bytes, static_cast<size_t>(left));
}

void decode_bf16(Format format, const uint8_t* codes, int64_t n, uint16_t* y) {
  with_element(
      format, [&]<Format F>() __attribute__((always_inline)) {
        int64_t i = 0;
        for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
          bf16v words[2];
          decode_pairs_x2<F>(codes, i, words);
          store_raw(y + i, words[0]);
          store_raw(y + i + 2 * kLanes, words[1]);
        }
        for (; i + 2 * kLanes <= n; i += 2 * kLanes) store_raw(y + i, decode_pairs<F>(codes, i));
        if (i < n) {
          scalar_format_kernels().decode_bf16(format, codes + (is_four_bits(F) ? i / 2 : i), n - i,
                                              y + i);
        }
      });
}

void convert(Format source, Format out, const void* x, int64_t n, void* y) {
  with_source(
      source, [&]<Format S>() __attribute__((always_inline)) {
        with_source(
            out, [&]<Format O>() __attribute__((always_inline)) {
              int64_t i = 0;
              for (; i + kLanes <= n; i += kLanes) store<O>(y, i, load<S>(x, i));
              if (i < n) {
                const int left = static_cast<int>(n - i);
                store_partial<O>(y, i, load_partial<S>(x, i, left), left);
              }
            });
      });
}

}  // namespace

extern const FormatKernels kFormatKernels;
const FormatKernels kFormatKernels = {
    VectorOps::amax, VectorOps::encode, encode_ue8m0, VectorOps::squared_error,
    quantize_row,    dequantize_row,    decode_bf16,  convert};

}  // namespace halftone::HALFTONE_LEVEL

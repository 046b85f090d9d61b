// The row operations in vectors, compiled once per instruction level.
#include "formats/kernels.h"
#include "formats/vector_band.h"
#include "formats/vector_groups.h"
#include "simd/stream_lines.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

struct VectorOps {
  static uint32_t amax(Format source, const void* x, int64_t n) {
    return with_source(source, [&]<Format S>() { return largest_lane(amax_lanes<S>(x, 0, n)); });
  }

  static void range(Format source, const void* x, int64_t n, float* low, float* high) {
    f32v least{}, largest{};
    with_source(source, [&]<Format S>() {
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
    with_source(source, [&]<Format S>() {
      with_element(target, [&]<Format T>() { encode_run<S, T>(x, 0, n, multiplier, zero, codes); });
    });
  }

  static double squared_error(Format source, Format target, const void* x, int64_t n,
                              float multiplier, int zero, float scale, float tensor_scale) {
    return with_source(source, [&]<Format S>() {
      return with_element(target, [&]<Format T>() {
        return error_run<S, T>(x, n, multiplier, zero, scale, tensor_scale);
      });
    });
  }
};

void stream(const uint8_t* from, int64_t bytes, uint8_t* to) { stream_lines(from, bytes, to); }

// Elements between two visits to memory: few enough that reading, computing and writing overlap.
constexpr int64_t kStreamedRun = 512;

struct RowOps : VectorOps {
  // As quantize_row_with uses it: only finite elements and multipliers are encoded.
  static void encode_block(const Recipe& recipe, Format source, const void* x, int64_t n,
                           float multiplier, int zero, uint8_t* codes) {
    const int64_t streamed =
        recipe.streamed && starts_line(codes) ? n / kStreamedRun * kStreamedRun : 0;
    with_source(source, [&]<Format S>() {
      with_element(recipe.format, [&]<Format T>() {
        alignas(64) uint8_t buffer[kStreamedRun];
        constexpr int kPerByte = is_four_bits(T) ? 2 : 1;
        for (int64_t i = 0; i < n;) {
          const bool lines = i < streamed;
          const int64_t count = lines ? kStreamedRun : n - i;
          uint8_t* to = codes + i / kPerByte;
          encode_run<S, T, false>(x, i, count, multiplier, zero, lines ? buffer : to);
          if (lines) stream_lines(buffer, kStreamedRun / kPerByte, to);
          i += count;
        }
      });
    });
  }
};

// The strip's arithmetic fills the processor's window of instructions, so that loads do not run
// ahead by themselves, and its own prefetcher stays too close. What lies behind the row is mostly
// the next one; asking for what is not there does no harm.
constexpr int64_t kAhead = 4096;

// A row of groups of a length in vectors; columns is a multiple of group * kLanes. What cannot be
// done kLanes groups at once goes to general(first element, count).
template <Format S, Format T, class General>
HALFTONE_INLINE bool quantize_strips(const Recipe& recipe, int64_t group, const void* x,
                                     int64_t columns, uint8_t* codes, uint8_t* scales,
                                     uint8_t* zeros, const General& general) {
  bool fits = true;
  const int64_t strip = group * kLanes;
  // Strips of longer groups are written directly: by then the buffer's way costs more than it
  // saves.
  alignas(64) uint8_t buffer[4096];
  const bool streamed = recipe.streamed && starts_line(codes) && strip <= 4096 &&
                        strip * bits(T) / 8 % kLineBytes == 0;
  GroupScales next = group_scales<S, T>(recipe, group, x, 0);
  for (int64_t begin = 0; begin < columns; begin += strip) {
    // The scales of the next strip come first: their long chain of dependent steps then runs beside
    // the encoding of this one.
    const GroupScales of = next;
    const auto* ahead = static_cast<const char*>(x) + begin * plain_bytes(S) + kAhead;
    for (int64_t i = 0; i < strip * plain_bytes(S); i += 64) __builtin_prefetch(ahead + i);
    if (begin + strip < columns) next = group_scales<S, T>(recipe, group, x, begin + strip);
    if (!of.finite) {
      fits &= general(begin, strip);
      continue;
    }
    const int64_t g = begin / group;
    store_scales(recipe.scale_format, scales + g * scale_bytes(recipe.scale_format), of.code);
    if (recipe.asymmetric) store_bytes(zeros + g, bits_as<u32v>(of.zero));
    uint8_t* to = codes + (is_four_bits(T) ? begin / 2 : begin);
    encode_groups<S, T>(of, group, x, begin, streamed ? buffer : to);
    if (streamed) stream_lines(buffer, is_four_bits(T) ? strip / 2 : strip, to);
  }
  return fits;
}

bool quantize_row(const Recipe& recipe, Format source, const void* x, int64_t columns,
                  uint8_t* codes, uint8_t* scales, uint8_t* zeros) {
  const bool packed = is_four_bits(recipe.format);
  const auto general = [&](int64_t begin, int64_t n) {
    const int64_t g = recipe.group > 0 ? begin / recipe.group : 0;
    return quantize_row_with<RowOps>(
        recipe, source, static_cast<const char*>(x) + begin * plain_bytes(source), n,
        codes + (packed ? begin / 2 : begin), scales + g * scale_bytes(recipe.scale_format),
        zeros + (zeros != nullptr ? g : 0));
  };
  const int64_t strip = recipe.group * kLanes;
  if (recipe.adaptive || strip == 0 || recipe.group % kLanes != 0) return general(0, columns);
  const int64_t whole = columns / strip * strip;
  if (whole == 0) return general(0, columns);
  bool fits = true;
  with_source(source, [&]<Format S>() {
    with_element(recipe.format, [&]<Format T>() {
      const auto strips = [&](int64_t group) __attribute__((always_inline)) {
        fits = quantize_strips<S, T>(recipe, group, x, whole, codes, scales, zeros, general);
      };
      // Constants for the groups of one or two vectors, whose loops would cost more than they do.
      if (T == Format::nvfp4 && recipe.group == 16) {
        strips(16);
      } else if (recipe.group == 32) {
        strips(32);
      } else {
        strips(recipe.group);
      }
    });
  });
  return whole < columns ? general(whole, columns - whole) && fits : fits;
}

bool quantize_band(const Recipe& recipe, Format source, const Band& band) {
  return with_source(source, [&]<Format S>() {
    switch (recipe.format) {
      case Format::fp8_e5m2:
        return quantize_band_as<S, Format::fp8_e5m2>(recipe, band);
      case Format::int8:
        return quantize_band_as<S, Format::int8>(recipe, band);
      default:
        return quantize_band_as<S, Format::fp8_e4m3>(recipe, band);
    }
  });
}

// --- the way back --------------------------------------------------------------------------------

// Stores floats that were themselves rounded; false, having stored nothing, where one lies midway
// between two numbers of the output, so that the direction depends on what was rounded away.
template <Format O>
HALFTONE_INLINE bool store_rounded(void* y, int64_t i, f32v x) {
  const i32v bits = bits_as<i32v>(x) & 0x7fffffff;
  if constexpr (O == Format::bf16) {
#if defined(__AVX512BF16__)
    // VCVTNEPS2BF16 flushes subnormals.
    const __mmask32 midway =
        _mm512_mask_cmpeq_epi16_mask(0x55555555, bits_as<__m512i>(x), _mm512_set1_epi16(-0x8000));
    const __mmask16 subnormal = _mm512_fpclass_ps_mask(bits_as<__m512>(x), 0x20);
    if ((midway | subnormal) != 0) return false;
    store_raw(static_cast<uint16_t*>(y) + i, _mm512_cvtneps_pbh(bits_as<__m512>(x)));
    return true;
#else
    if (any((bits & 0xffff) == broadcast_i32(0x8000))) return false;
#endif
  } else if constexpr (O == Format::f16) {  // below 2^-14 the spacing changes: those all count
    const i32v small = (bits < broadcast_i32(0x38800000)) & (bits != i32v{});
    if (any(((bits & 0x1fff) == broadcast_i32(0x1000)) | small)) return false;
  }
  store<O>(y, i, x);
  return true;
}

// Elements begin .. begin + n, which share scale g.
template <Format F, Format O>
HALFTONE_INLINE void dequantize_group(Format format, int64_t g, int64_t begin, int64_t n,
                                      const uint8_t* codes, const RowScales& row, void* y) {
  const f32v scale = broadcast(row.scales[g]), factor = broadcast(row.factor);
  const int zero = row.zeros != nullptr ? row.zeros[g] : kInt4Zero;
  const auto exactly = [&](int64_t i, int64_t count) __attribute__((noinline)) {
    const RowScales one{row.scales + g, row.zeros != nullptr ? row.zeros + g : nullptr, count,
                        row.factor};
    scalar_format_kernels().dequantize_row(format, codes + (is_four_bits(F) ? i / 2 : i), count,
                                           one, O, static_cast<char*>(y) + i * plain_bytes(O));
  };
  int64_t i = begin;
  for (; i + kLanes <= begin + n; i += kLanes) {
    f32v v;
    if constexpr (F == Format::int4) {
      v = decode_int4(codes, i, zero);
    } else {
      v = decode<F>(codes, i);
    }
    if (!store_rounded<O>(y, i, v * scale * factor)) exactly(i, kLanes);
  }
  if (i < begin + n) exactly(i, begin + n - i);
}

template <Format F, Format O>
HALFTONE_INLINE void dequantize_run(Format format, int64_t group, const uint8_t* codes,
                                    int64_t columns, const RowScales& row, void* y) {
  int64_t begin = 0, g = 0;
  for (; begin + group <= columns; begin += group, ++g) {
    dequantize_group<F, O>(format, g, begin, group, codes, row, y);
  }
  if (begin < columns) dequantize_group<F, O>(format, g, begin, columns - begin, codes, row, y);
}

void dequantize_row(Format format, const uint8_t* codes, int64_t columns, const RowScales& row,
                    Format out, void* y) {
  if (is_four_bits(format) && row.group % 2 != 0 && row.group < columns) {
    return scalar_format_kernels().dequantize_row(format, codes, columns, row, out, y);
  }
  with_element(format, [&]<Format F>() {
    with_source(out, [&]<Format O>() {
      // A constant for the shortest groups, whose loop would cost more than they do.
      if (F == Format::nvfp4 && row.group == 16) {
        dequantize_run<F, O>(format, 16, codes, columns, row, y);
      } else {
        dequantize_run<F, O>(format, row.group, codes, columns, row, y);
      }
    });
  });
}

void encode_ue8m0(const float* x, int64_t n, bool down, uint8_t* codes) {
  const auto encode = [down](f32v v) __attribute__((always_inline)) {
    const u32v code = down ? encode_ue8m0_down(v) : encode_ue8m0_up(v);
    return narrow_u8(code);
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
  with_element(format, [&]<Format F>() {
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
  with_source(source, [&]<Format S>() {
    with_source(out, [&]<Format O>() {
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
const FormatKernels kFormatKernels = {VectorOps::amax, VectorOps::encode,
                                      encode_ue8m0,    VectorOps::squared_error,
                                      quantize_row,    quantize_band,
                                      dequantize_row,  decode_bf16,
                                      convert,         stream};

}  // namespace halftone::HALFTONE_LEVEL

// Rows of plain floats to codes, in vectors of one instruction level.
#pragma once
#include "formats/row_quantizer.h"
#include "simd/decode.h"
#include "simd/encode.h"

namespace halftone::HALFTONE_LEVEL {

// Calls f.template operator()<S>() for the plain float format.
template <class F>
HALFTONE_INLINE auto with_source(Format source, F f) {
  switch (source) {
    case Format::f16:
      return f.template operator()<Format::f16>();
    case Format::bf16:
      return f.template operator()<Format::bf16>();
    default:
      return f.template operator()<Format::f32>();
  }
}
// The same for the five kinds of elements.
template <class F>
HALFTONE_INLINE auto with_element(Format format, F f) {
  switch (format) {
    case Format::fp8_e5m2:
      return f.template operator()<Format::fp8_e5m2>();
    case Format::mxfp4:
    case Format::nvfp4:
      return f.template operator()<Format::nvfp4>();
    case Format::int8:
      return f.template operator()<Format::int8>();
    case Format::int4:
      return f.template operator()<Format::int4>();
    default:
      return f.template operator()<Format::fp8_e4m3>();
  }
}

template <Format S>
HALFTONE_INLINE float load_scalar(const void* x, int64_t i) {
  if constexpr (S == Format::f32) {
    return static_cast<const float*>(x)[i];
  } else if constexpr (S == Format::bf16) {
    return decode_bf16(static_cast<const uint16_t*>(x)[i]);
  } else {
    return decode_f16(static_cast<const uint16_t*>(x)[i]);
  }
}

// Largest bits of |x|, lane by lane; NaNs are above infinity.
template <Format S>
HALFTONE_INLINE u32v amax_lanes(const void* x, int64_t begin, int64_t n) {
  i32v largest{}, other{};
  int64_t i = begin;
  const int64_t end = begin + n;
  for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
    largest = max(largest, bits_as<i32v>(load<S>(x, i)) & 0x7fffffff);
    other = max(other, bits_as<i32v>(load<S>(x, i + kLanes)) & 0x7fffffff);
  }
  for (; i < end; i += kLanes) {
    const int64_t left = end - i;
    const f32v v = left >= kLanes ? load<S>(x, i) : load_partial<S>(x, i, static_cast<int>(left));
    largest = max(largest, bits_as<i32v>(v) & 0x7fffffff);
  }
  return bits_as<u32v>(max(largest, other));
}
HALFTONE_INLINE uint32_t largest_lane(u32v x) {
  uint32_t lane[kLanes], largest = 0;
  store_raw(lane, x);
  for (int i = 0; i < kLanes; ++i) largest = lane[i] > largest ? lane[i] : largest;
  return largest;
}

template <Format T>
HALFTONE_INLINE u32v encode_lanes(f32v x, int zero) {
  if constexpr (T == Format::fp8_e4m3) {
    return encode_e4m3(x);
  } else if constexpr (T == Format::fp8_e5m2) {
    return encode_e5m2(x);
  } else if constexpr (T == Format::int8) {
    return encode_int8(x);
  } else if constexpr (T == Format::int4) {
    return encode_int4(x, zero);
  } else {
    return encode_e2m1(x);
  }
}

// Lanes 2i and 2i + 1 into byte i.
HALFTONE_INLINE void store_nibbles(uint8_t* to, u32v codes) {
  typedef uint64_t u64v __attribute__((vector_size(kLanes * 4)));
  typedef uint8_t u8h __attribute__((vector_size(kLanes / 2)));
  const u64v pairs = bits_as<u64v>(codes);
  store_raw(to, __builtin_convertvector(pairs | (pairs >> 28), u8h));
}

template <Format T>
HALFTONE_INLINE void store_codes(uint8_t* to, u32v codes) {
  if constexpr (is_four_bits(T)) {
    store_nibbles(to, codes);
  } else {
    store_raw(to, __builtin_convertvector(codes, u8v));
  }
}

// Elements begin .. begin + n of x; `codes` is the byte of the first.
template <Format S, Format T>
HALFTONE_INLINE void encode_run(const void* x, int64_t begin, int64_t n, float multiplier, int zero,
                                uint8_t* codes) {
  const f32v factor = broadcast(multiplier);
  constexpr int kPerByte = is_four_bits(T) ? 2 : 1;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store_codes<T>(codes + i / kPerByte, encode_lanes<T>(load<S>(x, begin + i) * factor, zero));
  }
  if (i == n) return;
  const int left = static_cast<int>(n - i);
  u32v last = encode_lanes<T>(load_partial<S>(x, begin + i, left) * factor, zero);
  uint8_t bytes[kLanes];
  if (kPerByte == 2 && left % 2 != 0) {  // the half byte behind the row is 0
    uint32_t lane[kLanes];
    store_raw(lane, last);
    lane[left] = 0;
    last = load_raw<u32v>(lane);
  }
  store_codes<T>(bytes, last);
  std::memcpy(codes + i / kPerByte, bytes, static_cast<size_t>((left + kPerByte - 1) / kPerByte));
}

// As FormatKernels::squared_error, 16 elements at a time whatever the width of a vector.
template <Format S, Format T>
HALFTONE_INLINE double error_run(const void* x, int64_t n, float multiplier, int zero, double scale,
                                 double tensor_scale) {
  double partial[16] = {};
  const f32v factor = broadcast(multiplier);
  for (int64_t i = 0; i < n; i += 16) {
    const int count = n - i < 16 ? static_cast<int>(n - i) : 16;
    float value[16] = {}, decoded[16];
    for (int j = 0; j < count; j += kLanes) {
      const int left = count - j;
      const f32v v = left >= kLanes ? load<S>(x, i + j) : load_partial<S>(x, i + j, left);
      uint8_t codes[kLanes];
      store_codes<T>(codes, encode_lanes<T>(v * factor, zero));
      store_raw(value + j, v);
      if constexpr (T == Format::int4) {
        store_raw(decoded + j, decode_int4(codes, 0, zero));
      } else {
        store_raw(decoded + j, decode<T>(codes, 0));
      }
    }
    for (int j = 0; j < count; ++j) {
      const double difference = value[j] - static_cast<double>(decoded[j]) * scale * tensor_scale;
      partial[j] += difference * difference;
    }
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) partial[i] += partial[i + width];
  }
  return partial[0];
}

}  // namespace halftone::HALFTONE_LEVEL

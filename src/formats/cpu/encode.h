// Rows of plain floats to codes, in vectors of one ISA level.
#pragma once
#include "formats/cpu/pairs.h"
#include "formats/kernels.h"
#include "formats/row_quantizer.h"
#include "simd/decode.h"
#include "simd/encode.h"
#include "simd/two.h"

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
// Largest bits of |x|, lane by lane; NaNs are above infinity. 16-bit numbers are compared as they
// are, and the winners widened: widening keeps the order of magnitudes. kWhole: n is a multiple of
// kLanes.
template <Format S, bool kWhole = false>
HALFTONE_INLINE u32v amax_lanes(const void* x, int64_t begin, int64_t n) {
  constexpr int kStep = S == Format::f32 ? kLanes : 2 * kLanes;
  typedef int16_t i16x2 __attribute__((vector_size(kLanes * 4)));
  const int64_t end = begin + n;
  int64_t i = begin;
  i32v largest{};
  if constexpr (S == Format::f32) {
    i32v other{};
    for (; i + 2 * kStep <= end; i += 2 * kStep) {
      largest = max(largest, bits_as<i32v>(load<S>(x, i)) & 0x7fffffff);
      other = max(other, bits_as<i32v>(load<S>(x, i + kLanes)) & 0x7fffffff);
    }
    largest = max(largest, other);
  } else if (i + kStep <= end) {
    i16x2 half{};
    for (; i + kStep <= end; i += kStep) {
      const i16x2 magnitude = load_raw<i16x2>(static_cast<const uint16_t*>(x) + i) & 0x7fff;
      half = magnitude > half ? magnitude : half;
    }
    u16v parts[2];
    std::memcpy(parts, &half, sizeof half);
    const f32v a = S == Format::bf16 ? widen_bf16(parts[0]) : widen_f16(parts[0]);
    const f32v b = S == Format::bf16 ? widen_bf16(parts[1]) : widen_f16(parts[1]);
    largest = max(bits_as<i32v>(a), bits_as<i32v>(b));
  }
  for (; i + kLanes <= end; i += kLanes) {
    largest = max(largest, bits_as<i32v>(load<S>(x, i)) & 0x7fffffff);
  }
  if constexpr (!kWhole) {
    if (i < end) {
      const f32v last = load_partial<S>(x, i, static_cast<int>(end - i));
      largest = max(largest, bits_as<i32v>(last) & 0x7fffffff);
    }
  }
  return bits_as<u32v>(largest);
}

// Lane i of the result is lane i ^ kStep of x.
template <int kStep>
HALFTONE_INLINE u32v swap_lanes(u32v x) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(x, x, 0 ^ kStep, 1 ^ kStep, 2 ^ kStep, 3 ^ kStep, 4 ^ kStep,
                                 5 ^ kStep, 6 ^ kStep, 7 ^ kStep, 8 ^ kStep, 9 ^ kStep, 10 ^ kStep,
                                 11 ^ kStep, 12 ^ kStep, 13 ^ kStep, 14 ^ kStep, 15 ^ kStep);
#elif defined(__AVX2__)
  return __builtin_shufflevector(x, x, 0 ^ kStep, 1 ^ kStep, 2 ^ kStep, 3 ^ kStep, 4 ^ kStep,
                                 5 ^ kStep, 6 ^ kStep, 7 ^ kStep);
#else
  return __builtin_shufflevector(x, x, 0 ^ kStep, 1 ^ kStep, 2 ^ kStep, 3 ^ kStep);
#endif
}

// Reduces kLanes vectors at once: lane i of v[0] becomes op over the lanes of v[i].
template <int kStep = kLanes / 2, class V, class Op>
HALFTONE_INLINE void reduce_each(V* v, Op op) {
  if constexpr (kStep > 0) {
    alignas(64) int32_t index[kLanes];
    for (int i = 0; i < kLanes; ++i) index[i] = (i & kStep) != 0 ? -1 : 0;
    const i32v upper = load_raw<i32v>(index);
    for (int i = 0; i < kStep; ++i) {
      const V kept = pick(upper, v[i + kStep], v[i]);
      const V other = pick(upper, v[i], v[i + kStep]);
      v[i] = op(kept, bits_as<V>(swap_lanes<kStep>(bits_as<u32v>(other))));
    }
    reduce_each<kStep / 2>(v, op);
  }
}

template <int kStep = kLanes / 2>
HALFTONE_INLINE uint32_t largest_lane(u32v x) {
  if constexpr (kStep == 0) {
    uint32_t first;
    std::memcpy(&first, &x, sizeof first);
    return first;
  } else {
    const i32v folded = max(bits_as<i32v>(x), bits_as<i32v>(swap_lanes<kStep>(x)));
    return largest_lane<kStep / 2>(bits_as<u32v>(folded));
  }
}

// Elements begin .. begin + n of x; `codes` is the byte of the first.
template <Format S, Format T, bool kNan = true>
HALFTONE_INLINE void encode_run(const void* x, int64_t begin, int64_t n, float multiplier, int zero,
                                uint8_t* codes, bool streamed = false) {
  const f32v factor = broadcast(multiplier);
  int64_t i = 0;
  if constexpr (has_pairs<S, T>()) {
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      uint8_t* to = codes + code_offset(T, i);
      if (!encode_pairs<T, kNan>(x, begin + i, factor, zero, to, streamed)) break;
    }
  }
  for (; i + kLanes <= n; i += kLanes) {
    store_codes<T>(codes + code_offset(T, i),
                   encode_lanes<T, kNan>(load<S>(x, begin + i) * factor, zero), streamed);
  }
  if (i == n) return;
  const int left = static_cast<int>(n - i);
  u32v last = encode_lanes<T, kNan>(load_partial<S>(x, begin + i, left) * factor, zero);
  uint8_t bytes[kLanes];
  if (left % elements_of_unit(T) != 0) {  // what shares a byte with the row's end is 0
    uint32_t lane[kLanes];
    store_raw(lane, last);
    for (int k = left; k % elements_of_unit(T) != 0; ++k) lane[k] = 0;
    last = load_raw<u32v>(lane);
  }
  store_codes<T>(bytes, last);
  std::memcpy(codes + code_offset(T, i), bytes, static_cast<size_t>((left * bits_of(T) + 7) / 8));
}

// encode_run of finite products, past the caches where `streamed` asks for it and codes start a
// line. Asks for what lies `ahead` bytes behind each element, which will be read next: the memory
// would idle meanwhile.
template <Format S, Format T>
HALFTONE_INLINE void encode_past_caches(const void* x, int64_t begin, int64_t n, float multiplier,
                                        int zero, uint8_t* codes, bool streamed, int64_t ahead) {
  constexpr int64_t kRun = 512;
  streamed = streamed && starts_line(codes);
  for (int64_t i = 0; i < n; i += kRun) {
    const int64_t count = n - i < kRun ? n - i : kRun;
    const auto* next = static_cast<const char*>(x) + (begin + i) * plain_bytes(S) + ahead;
    for (int64_t k = 0; ahead != 0 && k < count * plain_bytes(S); k += kLineBytes) {
      __builtin_prefetch(next + k, 0, 2);
    }
    encode_run<S, T, false>(x, begin + i, count, multiplier, zero, codes + code_offset(T, i),
                            streamed);
  }
}

// As FormatKernels::squared_error, 16 elements at a time whatever the width of a vector.
template <Format S, Format T>
HALFTONE_INLINE double error_run(const void* x, int64_t n, float multiplier, int zero, double scale,
                                 double tensor_scale) {
  double partial[16] = {};
  const f32v factor = broadcast(multiplier);
  for (int64_t i = 0; i < n; i += 16) {
    const int count = n - i < 16 ? static_cast<int>(n - i) : 16;
    float value[16] = {}, decoded[16] = {};
    for (int j = 0; j < count; j += kLanes) {
      const int left = count - j;
      const f32v v = left >= kLanes ? load<S>(x, i + j) : load_partial<S>(x, i + j, left);
      uint8_t codes[kLanes];
      store_codes<T>(codes, encode_lanes<T, false>(v * factor, zero));
      store_raw(value + j, v);
      if constexpr (T == Format::int4) {
        store_raw(decoded + j, decode_int4(codes, 0, zero));
      } else {
        store_raw(decoded + j, decode<T>(codes, 0));
      }
    }
    for (int j = count; j < 16; ++j) value[j] = decoded[j] = 0;
    for (int j = 0; j < 16; ++j) {
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

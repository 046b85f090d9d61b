// Scales and zero points of one weight row as one f32 per vector lane. Included by level sources.
#pragma once
#include "ops/product/decode.h"
#include "ops/product/product.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

using product::Weights;
inline constexpr int kChunk = 8 * kLanes;

HALFTONE_INLINE float decode_scale(Format format, const uint8_t* p) {
  uint32_t u = 0;
  switch (format) {
    case Format::f32: {
      float x;
      std::memcpy(&x, p, 4);
      return x;
    }
    case Format::bf16:
      std::memcpy(&u, p, 2);
      return std::bit_cast<float>(u << 16);
    case Format::f16: {
      uint16_t half;
      std::memcpy(&half, p, 2);
      return widen_f16(u16v{half})[0];
    }
    case Format::fp8_e4m3:
      return e4m3_top(broadcast_u32(static_cast<uint32_t>(*p) << 24))[0];
    default:
      return ue8m0(broadcast_u32(*p))[0];
  }
}

// `count` scales, one after the other in memory, to f32.
HALFTONE_INLINE void decode_scales(Format format, const uint8_t* p, int64_t count, float* out) {
  int64_t i = 0;
  switch (format) {
    case Format::fp8_e4m3:
      for (; i + kLanes <= count; i += kLanes) {
        store_raw(out + i, e4m3_top(__builtin_convertvector(load_raw<u8v>(p + i), u32v) << 24));
      }
      break;
    case Format::ue8m0:
      for (; i + kLanes <= count; i += kLanes) {
        store_raw(out + i, ue8m0(__builtin_convertvector(load_raw<u8v>(p + i), u32v)));
      }
      break;
    case Format::f16:
      for (; i + kLanes <= count; i += kLanes) store_raw(out + i, load<Format::f16>(p, i));
      break;
    case Format::bf16:
      for (; i + kLanes <= count; i += kLanes) store_raw(out + i, load<Format::bf16>(p, i));
      break;
    default:
      break;
  }
  const int64_t size = format == Format::f32                             ? 4
                       : format == Format::f16 || format == Format::bf16 ? 2
                                                                         : 1;
  for (; i < count; ++i) out[i] = decode_scale(format, p + i * size);
}

// Lane d of each chunk gets element values[group of d] for groups that divide the chunk.
HALFTONE_INLINE void replicate(const float* values, int64_t per_chunk, int64_t chunks, float* out) {
#if defined(__AVX512F__)
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const int shift = __builtin_ctzll(static_cast<uint64_t>(kLanes / per_chunk));
  const __m512i pick = _mm512_srli_epi32(lane, static_cast<unsigned>(shift));
  for (int64_t c = 0; c < chunks; ++c) {
    // Reads past the chunk's values stay inside the caller's array and are not picked.
    const __m512 v = _mm512_permutexvar_ps(pick, _mm512_loadu_ps(values + c * per_chunk));
    _mm512_storeu_ps(out + c * kLanes, v);
  }
#else
  const int64_t lanes_per_group = kLanes / per_chunk;
  for (int64_t i = 0; i < chunks * kLanes; ++i) out[i] = values[i / lanes_per_group];
#endif
}

// Scales of row `row` for `chunks` chunks from `chunk0` on, one f32 per lane: out[chunk * stride +
// lane]. Lanes beyond K get 0.
HALFTONE_INLINE void scale_lanes(const Weights& w, int64_t row, int64_t chunk0, int64_t chunks,
                                 float* out) {
  const uint8_t* base =
      w.scales + (w.block_rows > 0 ? row / w.block_rows * w.scale_row : int64_t{0});
  const int64_t groups = product::ceil_div(w.k, w.group);
  if (w.group % kChunk == 0) {
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t g = (chunk0 + c) * kChunk / w.group;
      store_raw(out + c * kLanes, broadcast(decode_scale(w.scale_format, base + g * w.scale_step)));
    }
    return;
  }
  const int64_t element = w.scale_format == Format::f32                                     ? 4
                          : w.scale_format == Format::f16 || w.scale_format == Format::bf16 ? 2
                                                                                            : 1;
  if (kChunk % w.group == 0 && w.scale_step == element) {
    const int64_t per_chunk = kChunk / w.group;
    const int64_t first = chunk0 * per_chunk;
    const int64_t wanted = chunks * per_chunk;
    const int64_t present = groups - first < wanted ? groups - first : wanted;
    float values[product::kMaxBlockChunks * kLanes + kLanes];
    decode_scales(w.scale_format, base + first * element, present, values);
    for (int64_t i = present; i < wanted; ++i) values[i] = 0;
#if defined(__AVX512F__)
    store_raw(values + wanted, f32v{});  // what replicate reads and does not pick
#endif
    replicate(values, per_chunk, chunks, out);
    return;
  }
  for (int64_t i = 0; i < chunks * kLanes; ++i) {
    const int64_t g = (chunk0 * kLanes + i) * 8 / w.group;
    out[i] = g < groups ? decode_scale(w.scale_format, base + g * w.scale_step) : 0.0f;
  }
}

// Zero points likewise, as integers.
HALFTONE_INLINE void zero_lanes(const Weights& w, int64_t row, int64_t chunk0, int64_t chunks,
                                int32_t* out) {
  const uint8_t* base = w.zeros + (w.block_rows > 0 ? row / w.block_rows * w.zero_row : int64_t{0});
  const int64_t groups = product::ceil_div(w.k, w.group);
  for (int64_t i = 0; i < chunks * kLanes;) {
    const int64_t octet = chunk0 * kLanes + i;
    const int64_t g = octet * 8 / w.group;
    const int32_t zero = g < groups ? base[g * w.zero_step] : 0;
    const int64_t end = (g + 1) * (w.group / 8) - chunk0 * kLanes;
    for (; i < end && i < chunks * kLanes; ++i) out[i] = zero;
  }
}

}  // namespace halftone::HALFTONE_LEVEL

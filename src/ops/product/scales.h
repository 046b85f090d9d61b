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
#if defined(__F16C__)
      return _cvtsh_ss(half);
#else
      return widen_f16(u16v{half})[0];
#endif
    }
    case Format::fp8_e4m3:
      return e4m3_top(broadcast_u32(static_cast<uint32_t>(*p) << 24))[0];
    default:
      return ue8m0(broadcast_u32(*p))[0];
  }
}

HALFTONE_INLINE constexpr int64_t scale_bytes(Format format) {
  return format == Format::f32 ? 4 : format == Format::f16 || format == Format::bf16 ? 2 : 1;
}

#if defined(__AVX512F__)
// Up to 16 scales, one after the other in memory; the others read as 0.
HALFTONE_INLINE __m512 decode_sixteen(Format format, const uint8_t* p, int64_t count) {
  const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffff : count > 0 ? (1 << count) - 1 : 0);
  switch (format) {
    case Format::f32:
      return _mm512_maskz_loadu_ps(mask, p);
    case Format::f16:
      return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
    case Format::bf16:
      return _mm512_castsi512_ps(
          _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p)), 16));
    case Format::fp8_e4m3: {
      const __m512i code = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, p));
      return bits_as<__m512>(e4m3_top(bits_as<u32v>(_mm512_slli_epi32(code, 24))));
    }
    default: {
      const __m512i code = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, p));
      return _mm512_maskz_mov_ps(mask, bits_as<__m512>(ue8m0(bits_as<u32v>(code))));
    }
  }
}
#endif

// How the groups of a weight lie on chunks, worked out once a call: divisions are slow.
struct Groups {
  int64_t count = 0;             // of a row
  int64_t chunks_per_group = 0;  // > 0: a chunk has one scale
  int64_t per_chunk = 0;         // > 0: a chunk has that many, a power of two
};
HALFTONE_INLINE Groups groups_of(const Weights& w) {
  Groups g;
  if (!scaled_in_row(w)) return g;
  g.count = product::ceil_div(w.k, w.group);
  if (w.group % kChunk == 0) {
    g.chunks_per_group = w.group / kChunk;
    if (g.chunks_per_group == 1) g.per_chunk = 1;
  } else if (kChunk % w.group == 0 && w.group >= 8) {
    g.per_chunk = kChunk / w.group;
  }
  return g;
}
HALFTONE_INLINE int64_t block_row(const Weights& w, int64_t row) {
  return w.block_rows == 1 ? row : w.block_rows > 0 ? row / w.block_rows : 0;
}

// Fills lanes[chunk][lane] for `chunks` chunks from `chunk0` on with the 32 bits of each lane's
// group: `one(g)` is the value of group g of the row. Lanes beyond K get 0.
template <class One>
HALFTONE_INLINE void fill_lanes(const Weights& w, const Groups& groups, int64_t chunk0,
                                int64_t chunks, void* lanes, const One& one) {
  auto* out = static_cast<uint32_t*>(lanes);
  if (groups.chunks_per_group > 0) {
    int64_t g = groups.chunks_per_group == 1 ? chunk0 : chunk0 / groups.chunks_per_group;
    int64_t left = (g + 1) * groups.chunks_per_group - chunk0;
    for (int64_t c = 0; c < chunks; ++c, --left) {
      if (left == 0) ++g, left = groups.chunks_per_group;
      store_raw(out + c * kLanes, broadcast_u32(one(g)));
    }
    return;
  }
  for (int64_t i = 0; i < chunks * kLanes;) {
    const int64_t g = (chunk0 * kLanes + i) * 8 / w.group;
    const uint32_t value = g < groups.count ? one(g) : 0;
    const int64_t end = product::ceil_div((g + 1) * w.group, 8) - chunk0 * kLanes;
    for (; i < end && i < chunks * kLanes; ++i) out[i] = value;
  }
}

#if defined(__AVX512F__)
// The same for groups that divide a chunk and lie one after the other: `sixteen(g, count)` is a
// vector of groups from g on.
template <class Sixteen>
HALFTONE_INLINE void spread_lanes(const Groups& groups, int64_t chunk0, int64_t chunks, void* lanes,
                                  const Sixteen& sixteen) {
  const int64_t first = chunk0 * groups.per_chunk;
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i pick = _mm512_srli_epi32(
      lane, static_cast<unsigned>(__builtin_ctzll(static_cast<uint64_t>(16 / groups.per_chunk))));
  const __m512i step = _mm512_set1_epi32(static_cast<int>(groups.per_chunk));
  auto* out = static_cast<float*>(lanes);
  const int64_t in_vector = 16 / groups.per_chunk;
  for (int64_t c = 0; c < chunks; c += in_vector) {
    const int64_t g = first + c * groups.per_chunk;
    const __m512 values = sixteen(g, groups.count - g);
    __m512i index = pick;
    for (int64_t i = c; i < c + in_vector && i < chunks; ++i) {
      _mm512_storeu_ps(out + i * kLanes, _mm512_permutexvar_ps(index, values));
      index = _mm512_add_epi32(index, step);
    }
  }
}
#endif

HALFTONE_INLINE void scale_lanes(const Weights& w, const Groups& groups, const uint8_t* base,
                                 int64_t chunk0, int64_t chunks, float* lanes) {
#if defined(__AVX512F__)
  const int64_t size = scale_bytes(w.scale_format);
  if (groups.per_chunk > 0 && w.scale_step == size) {
    spread_lanes(groups, chunk0, chunks, lanes, [&](int64_t g, int64_t count) {
      return decode_sixteen(w.scale_format, base + g * size, count);
    });
    return;
  }
#endif
  fill_lanes(w, groups, chunk0, chunks, lanes, [&](int64_t g) {
    return std::bit_cast<uint32_t>(decode_scale(w.scale_format, base + g * w.scale_step));
  });
}

// Zero points likewise, as integers.
HALFTONE_INLINE void zero_lanes(const Weights& w, const Groups& groups, const uint8_t* base,
                                int64_t chunk0, int64_t chunks, int32_t* lanes) {
#if defined(__AVX512F__)
  if (groups.per_chunk > 0 && w.zero_step == 1) {
    spread_lanes(groups, chunk0, chunks, lanes, [&](int64_t g, int64_t count) {
      const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffff
                                               : count > 0 ? (1 << count) - 1
                                                           : 0);
      return _mm512_castsi512_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, base + g)));
    });
    return;
  }
#endif
  fill_lanes(w, groups, chunk0, chunks, lanes,
             [&](int64_t g) { return static_cast<uint32_t>(base[g * w.zero_step]); });
}

}  // namespace halftone::HALFTONE_LEVEL

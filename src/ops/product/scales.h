// Scales and zero points of one weight row as one f32 per vector lane. Included by level sources.
#pragma once
#include "formats/row_quantizer.h"
#include "ops/product/expand.h"
#include "ops/product/product.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

using product::Weights;

#if defined(__AVX512VBMI__)
// 16 codes to f32. Each is put in the upper two bytes of its lane, where the tables turn it into
// those of an f32: code 0, in the lower bytes, becomes 0.
HALFTONE_INLINE f32v e4m3_scales(__m128i codes) {
  const __m512i place =
      _mm512_setr_epi32(0x0000ffff, 0x0101ffff, 0x0202ffff, 0x0303ffff, 0x0404ffff, 0x0505ffff,
                        0x0606ffff, 0x0707ffff, 0x0808ffff, 0x0909ffff, 0x0a0affff, 0x0b0bffff,
                        0x0c0cffff, 0x0d0dffff, 0x0e0effff, 0x0f0fffff);
  __m512i high, low;
  lookup_bytes<Format::fp8_e4m3>(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), place), &high,
                                 &low);
  return bits_as<f32v>(_mm512_mask_blend_epi8(0x8888888888888888u, low, high));
}
// 64 codes to 64 f32, in order. Dwords are dealt to the 128-bit lanes so that unpacking bytes and
// then words puts them back.
HALFTONE_INLINE void e4m3_scales_64(const uint8_t* p, float* out) {
  const __m512i deal = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i high, low;
  lookup_bytes<Format::fp8_e4m3>(_mm512_permutexvar_epi32(deal, load_raw<__m512i>(p)), &high, &low);
  const __m512i zero = _mm512_setzero_si512();
  const __m512i first = _mm512_unpacklo_epi8(low, high), last = _mm512_unpackhi_epi8(low, high);
  store_raw(out, _mm512_unpacklo_epi16(zero, first));
  store_raw(out + 16, _mm512_unpackhi_epi16(zero, first));
  store_raw(out + 32, _mm512_unpacklo_epi16(zero, last));
  store_raw(out + 48, _mm512_unpackhi_epi16(zero, last));
}
#endif

// A vector of up to kLanes scales, one after the other in memory; the other lanes are 0.
#if defined(__AVX512F__)
HALFTONE_INLINE f32v decode_vector(Format format, const uint8_t* p, int64_t count) {
  const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffff : count > 0 ? (1 << count) - 1 : 0);
  switch (format) {
    case Format::f32:
      return bits_as<f32v>(_mm512_maskz_loadu_ps(mask, p));
    case Format::f16:
      return widen_f16(bits_as<u16v>(_mm256_maskz_loadu_epi16(mask, p)));
    case Format::bf16:
      return widen_bf16(bits_as<u16v>(_mm256_maskz_loadu_epi16(mask, p)));
    default: {
#if defined(__AVX512VBMI__)
      if (format == Format::fp8_e4m3) return e4m3_scales(_mm_maskz_loadu_epi8(mask, p));
#endif
      const auto code = bits_as<u32v>(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, p)));
      if (format == Format::fp8_e4m3) return decode_code<Format::fp8_e4m3>(code);
      // Code 0 is not the number 0.
      return bits_as<f32v>(_mm512_maskz_mov_ps(mask, bits_as<__m512>(decode_ue8m0(code))));
    }
  }
}
HALFTONE_INLINE u32v load_bytes(const uint8_t* p, int64_t count) {
  const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffff : count > 0 ? (1 << count) - 1 : 0);
  return bits_as<u32v>(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, p)));
}
HALFTONE_INLINE u32v pick_lanes(u32v values, u32v index) {
  return bits_as<u32v>(_mm512_permutexvar_epi32(bits_as<__m512i>(index), bits_as<__m512i>(values)));
}
#elif defined(__AVX2__)
HALFTONE_INLINE f32v decode_vector(Format format, const uint8_t* p, int64_t count) {
  if (count < kLanes) {
    float values[kLanes] = {};
    for (int64_t i = 0; i < count; ++i) {
      values[i] = read_scale(format, p + i * scale_bytes(format));
    }
    return load_raw<f32v>(values);
  }
  if (format == Format::f32) return load<Format::f32>(p, 0);
  if (format == Format::f16) return load<Format::f16>(p, 0);
  if (format == Format::bf16) return load<Format::bf16>(p, 0);
  const u32v code =
      bits_as<u32v>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  return format == Format::fp8_e4m3 ? decode_code<Format::fp8_e4m3>(code) : decode_ue8m0(code);
}
HALFTONE_INLINE u32v load_bytes(const uint8_t* p, int64_t count) {
  uint32_t values[kLanes] = {};
  for (int64_t i = 0; i < count && i < kLanes; ++i) values[i] = p[i];
  return load_raw<u32v>(values);
}
HALFTONE_INLINE u32v pick_lanes(u32v values, u32v index) {
  return bits_as<u32v>(
      _mm256_permutevar8x32_epi32(bits_as<__m256i>(values), bits_as<__m256i>(index)));
}
#endif

// How the groups of a weight lie on chunks of `kPerLane` elements a lane, worked out once a call:
// divisions are slow.
struct Groups {
  int64_t count = 0;             // of a row
  int64_t chunks_per_group = 0;  // > 0: a chunk has one scale
  int64_t per_chunk = 0;         // > 0: a chunk has that many, a power of two
};
template <int kPerLane>
HALFTONE_INLINE Groups groups_of(const Weights& w) {
  constexpr int kChunk = kPerLane * kLanes;
  Groups g;
  if (!scaled_in_row(w)) return g;
  g.count = product::ceil_div(w.k, w.group);
  if (w.group % kChunk == 0) {
    g.chunks_per_group = w.group / kChunk;
    if (g.chunks_per_group == 1) g.per_chunk = 1;
  } else if (kChunk % w.group == 0 && w.group >= kPerLane) {
    g.per_chunk = kChunk / w.group;
  }
  return g;
}
HALFTONE_INLINE int64_t block_row(const Weights& w, int64_t row) {
  return w.block_rows == 1 ? row : w.block_rows > 0 ? row / w.block_rows : 0;
}

// Fills lanes[chunk][lane] for `chunks` chunks from `chunk0` on with the 32 bits of each lane's
// group: `one(g)` is the value of group g of the row. Lanes beyond K get 0.
template <int kPerLane, class One>
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
  if (groups.per_chunk > 0) {
    const int64_t first = chunk0 * groups.per_chunk, lanes_each = kLanes / groups.per_chunk;
    for (int64_t i = 0; i < chunks * groups.per_chunk; ++i) {
      const uint32_t value = first + i < groups.count ? one(first + i) : 0;
      for (int64_t d = 0; d < lanes_each; ++d) out[i * lanes_each + d] = value;
    }
    return;
  }
  for (int64_t i = 0; i < chunks * kLanes;) {
    const int64_t g = (chunk0 * kLanes + i) * kPerLane / w.group;
    const uint32_t value = g < groups.count ? one(g) : 0;
    const int64_t end = product::ceil_div((g + 1) * w.group, kPerLane) - chunk0 * kLanes;
    for (; i < end && i < chunks * kLanes; ++i) out[i] = value;
  }
}

#if defined(__AVX2__)
// The same for groups that divide a chunk and lie one after the other: `vector(g, count)` holds
// the groups from g on.
template <class Vector>
HALFTONE_INLINE void spread_lanes(const Groups& groups, int64_t chunk0, int64_t chunks, void* lanes,
                                  const Vector& vector) {
  const int64_t first = chunk0 * groups.per_chunk;
  const int64_t chunks_each = kLanes / groups.per_chunk;
  static constexpr uint32_t kLane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const u32v pick = load_raw<u32v>(kLane) >>
                    static_cast<uint32_t>(__builtin_ctzll(static_cast<uint64_t>(chunks_each)));
  auto* out = static_cast<uint32_t*>(lanes);
  for (int64_t c = 0; c < chunks; c += chunks_each) {
    const int64_t g = first + c * groups.per_chunk;
    const u32v values = vector(g, groups.count - g);
    u32v index = pick;
    for (int64_t i = c; i < c + chunks_each && i < chunks; ++i) {
      store_raw(out + i * kLanes, pick_lanes(values, index));
      index += static_cast<uint32_t>(groups.per_chunk);
    }
  }
}
#endif

// Out of line: its constants would take the registers of the loops that call it.
template <int kPerLane>
__attribute__((noinline)) void scale_lanes(const Weights& w, const Groups& groups,
                                           const uint8_t* base, int64_t chunk0, int64_t chunks,
                                           float* lanes) {
#if defined(__AVX2__)
  const int64_t size = scale_bytes(w.scale_format);
#if defined(__AVX512VBMI__)
  if (groups.per_chunk == kLanes && w.scale_step == 1 && w.scale_format == Format::fp8_e4m3 &&
      chunks % 4 == 0 && (chunk0 + chunks) * kLanes <= groups.count) {
    for (int64_t c = 0; c < chunks; c += 4) {
      e4m3_scales_64(base + (chunk0 + c) * kLanes, lanes + c * kLanes);
    }
    return;
  }
#endif
  if (groups.per_chunk > 0 && w.scale_step == size) {
    spread_lanes(groups, chunk0, chunks, lanes, [&](int64_t g, int64_t count) {
      return bits_as<u32v>(decode_vector(w.scale_format, base + g * size, count));
    });
    return;
  }
#endif
  fill_lanes<kPerLane>(w, groups, chunk0, chunks, lanes, [&](int64_t g) {
    return std::bit_cast<uint32_t>(read_scale(w.scale_format, base + g * w.scale_step));
  });
}

// Zero points likewise, as integers.
template <int kPerLane>
__attribute__((noinline)) void zero_lanes(const Weights& w, const Groups& groups,
                                          const uint8_t* base, int64_t chunk0, int64_t chunks,
                                          int32_t* lanes) {
#if defined(__AVX2__)
  if (groups.per_chunk > 0 && w.zero_step == 1) {
    spread_lanes(groups, chunk0, chunks, lanes,
                 [&](int64_t g, int64_t count) { return load_bytes(base + g, count); });
    return;
  }
#endif
  fill_lanes<kPerLane>(w, groups, chunk0, chunks, lanes,
                       [&](int64_t g) { return static_cast<uint32_t>(base[g * w.zero_step]); });
}

}  // namespace halftone::HALFTONE_LEVEL

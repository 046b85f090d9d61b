// Scales and zero points of one weight row, spread to one FP32 per vector lane. Included by
// ISA-level sources.
#pragma once
#include "formats/row_quantizer.h"
#include "ops/gemm/cpu/dequantise.h"
#include "ops/gemm/cpu/kernels.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

using gemm::Weights;

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

// How the scale groups of a weight map to chunks of `kPerLane` elements a lane, computed once a
// call: divisions are slow.
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
  g.count = gemm::ceil_div(w.k, w.group);
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
    const int64_t end = gemm::ceil_div((g + 1) * w.group, kPerLane) - chunk0 * kLanes;
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

#if defined(__AVX512VBMI__)
// Up to 64 one-byte scales as BF16, which holds them exactly; those beyond `count` are 0.
HALFTONE_INLINE void scale_words(Format format, const uint8_t* p, int64_t count, bf16v out[2]) {
  const __mmask64 valid = count >= 64 ? ~__mmask64{} : count > 0 ? (__mmask64{1} << count) - 1 : 0;
  const __m512i codes = _mm512_maskz_loadu_epi8(valid, p);
  if (format == Format::fp8_e4m3) return bytes_to_pairs<Format::fp8_e4m3>(codes, out);
  // 2^(code - 127). Code 0 is the subnormal 2^-127 and 255 a NaN: both set the bit below.
  const __m512i one = _mm512_set1_epi8(1), below = _mm512_set1_epi16(0x40);
  const __mmask64 edge = _mm512_mask_cmple_epu8_mask(valid, _mm512_add_epi8(codes, one), one);
  const __m512i low = _mm512_slli_epi16(_mm512_cvtepu8_epi16(_mm512_castsi512_si256(codes)), 7);
  const __m512i high =
      _mm512_slli_epi16(_mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(codes, 1)), 7);
  out[0] = bits_as<bf16v>(_mm512_mask_add_epi16(low, static_cast<__mmask32>(edge), low, below));
  out[1] =
      bits_as<bf16v>(_mm512_mask_add_epi16(high, static_cast<__mmask32>(edge >> 32), high, below));
}
// spread_lanes of such scales, kPerChunk a chunk: a lane's word goes to its upper half, which makes
// it an f32.
template <int kPerChunk>
HALFTONE_INLINE void spread_bytes(Format format, const Groups& groups, const uint8_t* base,
                                  int64_t chunk0, int64_t chunks, float* lanes) {
  constexpr int kChunks = 32 / kPerChunk;  // of a vector of words
  alignas(64) static constexpr uint32_t kLane[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                     8, 9, 10, 11, 12, 13, 14, 15};
  const u32v pick = load_raw<u32v>(kLane) / (kLanes / kPerChunk) << 16;
  const auto spread = [&](int64_t c, int64_t count) __attribute__((always_inline)) {
    const int64_t first = (chunk0 + c) * kPerChunk;
    bf16v of[2];
    scale_words(format, base + first, groups.count - first, of);
#pragma GCC unroll 16
    for (int i = 0; i < 2 * kChunks; ++i) {
      if (i >= count) return;
      const u32v index = pick + (static_cast<uint32_t>(i % kChunks * kPerChunk) << 16);
      store_raw(lanes + (c + i) * kLanes,
                _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, bits_as<__m512i>(index),
                                               bits_as<__m512i>(of[i / kChunks])));
    }
  };
  int64_t c = 0;
  for (; c + 2 * kChunks <= chunks; c += 2 * kChunks) spread(c, 2 * kChunks);
  if (c < chunks) spread(c, chunks - c);
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
  if (w.scale_step == 1 && size == 1) {  // nvfp4 and the MX formats
    if (groups.per_chunk == 16) {
      return spread_bytes<16>(w.scale_format, groups, base, chunk0, chunks, lanes);
    }
    if (groups.per_chunk == 8) {
      return spread_bytes<8>(w.scale_format, groups, base, chunk0, chunks, lanes);
    }
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

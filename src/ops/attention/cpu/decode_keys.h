// S = Q K^T of decode on the CPU, for ISA levels with VDPBF16PS. A vector holds 16 bytes of each of
// four keys, one in each lane of 128 bits, dequantised in registers and multiplied by the same part
// of a query in all lanes: 4 sums a key and row are left to reduce, 9 instructions for 4 keys and 4
// rows. Block scales multiply sums.
#pragma once
#include "ops/attention/cpu/decode_dequantise.h"

#if defined(__AVX512BF16__)
namespace halftone::HALFTONE_LEVEL {

// Keys of all heads whose scores, and whose P V, are computed before the next ones: a query serves
// this many keys, and an O as many rows of V, while it stays in L1.
inline constexpr int64_t kDecodeStrip = 64;

// Sums of neighbouring elements: of a in the first half of each lane, of b in the second.
HALFTONE_INLINE f32v reduce_lanes(f32v x, f32v y) {
  const auto a = bits_as<__m512>(x), b = bits_as<__m512>(y);
  return bits_as<f32v>(_mm512_shuffle_ps(a, b, 0x88)) +
         bits_as<f32v>(_mm512_shuffle_ps(a, b, 0xdd));
}

// Element r of lane k of x[g] is the dot product of key 4 g + k and row r; false where an INT8 was
// -128, which no table holds. `q` has the parts of the rows.
template <class Dot, Format F>
HALFTONE_INLINE bool dot_keys(const RowPointer* keys, int64_t offset, int64_t scale_offset,
                              int64_t row_bytes, const uint8_t* q, f32v* x,
                              LinePrefetcher* prefetcher) {
  using Key = KeyFormat<F>;
  using Part = QueryPart<Dot>;
  constexpr int kGroups = Key::kGroups, kVectors = Key::kVectors, kBlocks = Key::kBlocks;
  // Two chains of sums a key and row hide the latency of the multiply-adds.
  f32v total[kGroups][4] = {}, other[kGroups][4] = {};
  [[maybe_unused]] __m512i most = _mm512_setzero_si512();
  int64_t scales_left = has_blocks(F) ? row_bytes * 8 / element_bits(F) / block_of(F) : 0;
  for (int64_t byte = 0; byte < row_bytes; byte += Key::kBytes) {
    const int64_t left = row_bytes - byte;
    const __mmask64 mask = left >= Key::kBytes ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    __m512i packed[kGroups][4];
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        packed[g][k] = load_packed<F>(keys[4 * g + k].data + offset + byte, mask);
      }
      transpose_lanes(packed[g]);
    }
    prefetcher->step<4 * kGroups * Key::kBytes / 64>();
    if constexpr (kBlocks == 0) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          f32v key[kGroups];
#pragma GCC unroll 2
          for (int g = 0; g < kGroups; ++g) {
            const KeyStep<F> step(packed[g][i]);
            key[g] = step.vector(v);
            if constexpr (F == Format::int8) most = _mm512_or_si512(most, step.x.magnitude);
          }
#pragma GCC unroll 4
          for (int r = 0; r < 4; ++r, q += Part::kBytes) {
            const Part row(q);
#pragma GCC unroll 2
            for (int g = 0; g < kGroups; ++g) {
              f32v& sum = (i * kVectors + v) % 2 == 0 ? total[g][r] : other[g][r];
              sum = multiply_add(row, key[g], sum);
            }
          }
        }
      }
    } else {
      __m512 scales[kGroups][2];
      const int blocks = static_cast<int>(scales_left < kBlocks ? scales_left : kBlocks);
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        scales[g][0] = scales[g][1] = scales_of<F>(keys + 4 * g, scale_offset, blocks);
        if constexpr (kBlocks == 8) {
          scales[g][1] = scales_of<F>(keys + 4 * g, scale_offset + (blocks > 4 ? 4 : 0),
                                      blocks > 4 ? blocks - 4 : 0);
        }
      }
      scale_offset += kBlocks, scales_left -= kBlocks;
#pragma GCC unroll 4
      for (int i = 0; i < 4; i += Key::kBlockSteps) {
        f32v sum[kGroups][4] = {};
#pragma GCC unroll 4
        for (int v = 0; v < kVectors * Key::kBlockSteps; ++v) {
          f32v key[kGroups];
#pragma GCC unroll 2
          for (int g = 0; g < kGroups; ++g) {
            key[g] = KeyStep<F>(packed[g][i + v / kVectors]).vector(v % kVectors);
          }
#pragma GCC unroll 4
          for (int r = 0; r < 4; ++r, q += Part::kBytes) {
            const Part row(q);
#pragma GCC unroll 2
            for (int g = 0; g < kGroups; ++g) {
              sum[g][r] = multiply_add(row, key[g], sum[g][r]);
            }
          }
        }
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g) {
          const f32v scale = scale_of_step<F>(scales[g], i);
#pragma GCC unroll 4
          for (int r = 0; r < 4; ++r) total[g][r] = fma(sum[g][r], scale, total[g][r]);
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 4
    for (int r = 0; kBlocks == 0 && r < 4; ++r) total[g][r] += other[g][r];
    x[g] = reduce_lanes(reduce_lanes(total[g][0], total[g][1]),
                        reduce_lanes(total[g][2], total[g][3]));
  }
  return F != Format::int8 || _mm512_movepi8_mask(most) == 0;
}

// Lane 4 q + k of the result is lane 4 k + row of x[q].
HALFTONE_INLINE f32v scores_of_row(const f32v (&x)[4], int row) {
  alignas(64) static constexpr uint32_t kOrder[16] = {0, 4, 8, 12, 16, 20, 24, 28,
                                                      0, 4, 8, 12, 16, 20, 24, 28};
  const __m512i order = _mm512_add_epi32(load_raw<__m512i>(kOrder), _mm512_set1_epi32(row));
  const __m512 low = _mm512_permutex2var_ps(bits_as<__m512>(x[0]), order, bits_as<__m512>(x[1]));
  const __m512 high = _mm512_permutex2var_ps(bits_as<__m512>(x[2]), order, bits_as<__m512>(x[3]));
  return bits_as<f32v>(_mm512_mask_blend_ps(0xff00, low, high));
}

// INT8 -128 has no entry in the table of magnitudes: the scores of its keys are computed again.
template <class Dot>
void recompute_int8_min(const RowPointer* keys, int64_t offset, int64_t head_dim, const uint32_t* q,
                        int64_t steps, int64_t rows, float* scores, int64_t stride) {
  if constexpr (Dot::kPair == 2) {
    for (int k = 0; k < kLanes; ++k) {
      const uint8_t* packed = keys[k].data + offset;
      __mmask64 lowest = 0;
      for (int64_t i = 0; i < head_dim; i += 64) {
        const __mmask64 mask =
            head_dim - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (head_dim - i)) - 1;
        lowest |= _mm512_cmpeq_epi8_mask(_mm512_maskz_loadu_epi8(mask, packed + i),
                                         _mm512_set1_epi8(-128));
      }
      if (lowest == 0) continue;
      alignas(64) uint16_t key[1024 + 32];
      dequantise_row<Format::int8>(packed, nullptr, head_dim, 2 * steps, key);
      for (int64_t r = 0; r < rows; ++r) {
        f32v sum = {};
        for (int64_t s = 0; s < steps; s += kLanes) {
          const auto mask =
              static_cast<__mmask16>(steps - s >= kLanes ? 0xffff : (1 << (steps - s)) - 1);
          alignas(64) uint8_t part[QueryPart<Dot>::kBytes];
          QueryPart<Dot>::pack(bits_as<f32v>(_mm512_maskz_loadu_epi32(mask, q + r * steps + s)),
                               part);
          sum = multiply_add(QueryPart<Dot>(part),
                             bits_as<f32v>(_mm512_maskz_loadu_epi32(mask, key + 2 * s)), sum);
        }
        scores[r * stride + k] = reduce_add(sum);
      }
    }
  }
}

// Scores of keys[0 .. count), a multiple of kDecodeStrip, for all rows of all heads: row r of
// `scores` is row r % per_head of head r / per_head. `q` holds the rows (`steps` 32-bit elements),
// `packed` those of pack_queries. While keys[i] are processed, keys[i + distance] are prefetched.
struct ScoreKeys {
  const AttentionRows& k;
  int64_t head_dim, kv_heads, per_head, steps;
  const uint32_t* q;
  const uint8_t* packed;
  float* scores;
  int64_t stride, distance;
};

template <class Dot, Format F>
void score_keys(const ScoreKeys& t, const RowPointer* keys, int64_t count) {
  constexpr int kGroups = KeyFormat<F>::kGroups;
  const int64_t row_bytes = t.head_dim * element_bits(F) / 8;
  const int64_t head_rows = (t.per_head + 3) / 4;
  const int64_t q_bytes = packed_query_bytes<Dot>(t.head_dim);
  LinePrefetcher prefetcher(t.k, t.kv_heads, row_bytes, keys + t.distance,
                            keys + t.distance + count);
  for (int64_t strip = 0; strip < count; strip += kDecodeStrip) {
    for (int64_t h = 0; h < t.kv_heads; ++h) {
      const int64_t offset = h * t.k.head_bytes, scale_offset = h * t.k.scale_head_bytes;
      for (int64_t i = strip; i < strip + kDecodeStrip; i += kLanes) {
        for (int64_t b = 0; b < head_rows; ++b) {
          const uint8_t* q = t.packed + (h * head_rows + b) * 4 * q_bytes;
          f32v x[4];
          bool all_in_tables = true;
          for (int g = 0; g < 4; g += kGroups) {
            all_in_tables &= dot_keys<Dot, F>(keys + i + 4 * g, offset, scale_offset, row_bytes, q,
                                              x + g, &prefetcher);
          }
          float* scores = t.scores + (h * t.per_head + 4 * b) * t.stride + i;
          const int rows = static_cast<int>(t.per_head - 4 * b < 4 ? t.per_head - 4 * b : 4);
          for (int r = 0; r < rows; ++r) store_raw(scores + r * t.stride, scores_of_row(x, r));
          if constexpr (F == Format::int8) {
            if (all_in_tables) continue;
            recompute_int8_min<Dot>(keys + i, offset, t.head_dim,
                                    t.q + (h * t.per_head + 4 * b) * t.steps, t.steps, rows, scores,
                                    t.stride);
          }
        }
      }
    }
  }
}

// The kernel of a format; null where there is none.
struct KeyScorer {
  void (*score)(const ScoreKeys&, const RowPointer* keys, int64_t count);
  void (*pack)(const uint32_t* q, int64_t steps, int64_t kv_heads, int64_t per_head,
               int64_t head_dim, uint8_t* packed);
};
template <class Dot, Format F>
KeyScorer key_scorer() {
  return {score_keys<Dot, F>, pack_queries<Dot, element_bits(F) == 4>};
}
template <class Dot>
KeyScorer key_scorer_of(Format format) {
  if constexpr (Dot::kPair == 1) {
    if (format == Format::f32) return key_scorer<Dot, Format::f32>();
    if (format == Format::f16) return key_scorer<Dot, Format::f16>();
  } else {
    if (format == Format::bf16) return key_scorer<Dot, Format::bf16>();
    if (format == Format::fp8_e4m3) return key_scorer<Dot, Format::fp8_e4m3>();
    if (format == Format::int8) return key_scorer<Dot, Format::int8>();
    if (format == Format::mxfp8) return key_scorer<Dot, Format::mxfp8>();
    if (format == Format::mxfp4) return key_scorer<Dot, Format::mxfp4>();
    if (format == Format::nvfp4) return key_scorer<Dot, Format::nvfp4>();
  }
  return {nullptr, nullptr};
}

}  // namespace halftone::HALFTONE_LEVEL
#endif

// Scores of few rows (decode), for levels with VDPBF16PS. A vector holds 16 bytes of each of four
// keys, one in each lane of 128 bits, expanded in registers and multiplied by the same part of a
// query in all lanes: 4 sums a key and row are left to fold, 9 instructions for 4 keys and 4 rows.
// The scales of blocks multiply sums.
#pragma once
#include "ops/attention/cpu_multiply.h"
#include "ops/attention/cpu_rows.h"

#if defined(__AVX512BF16__)
namespace halftone::HALFTONE_LEVEL {

HALFTONE_INLINE f32v multiply_add(F32Products, f32v c, f32v a, f32v b) { return fma(a, b, c); }
HALFTONE_INLINE f32v multiply_add(Bf16Products, f32v c, f32v a, f32v b) {
  return bits_as<f32v>(
      _mm512_dpbf16_ps(bits_as<__m512>(c), bits_as<__m512bh>(a), bits_as<__m512bh>(b)));
}

// How a row of keys is read: kBytes at a time make four vectors ("steps"), of which each becomes
// kVectors operands; kGroups * 4 keys at a time, as many as the registers hold.
template <Format F>
struct KeyCodes {
  static constexpr int kBytes = F == Format::f16 ? 32 : 64;
  static constexpr int kVectors = F == Format::mxfp4 || F == Format::nvfp4 ? 4
                                  : element_bits(F) == 8                   ? 2
                                                                           : 1;
  static constexpr int kGroups = 2;
  static constexpr int kBlocks = has_blocks(F) ? kBytes * 8 / element_bits(F) / block_of(F) : 0;
  static constexpr int kBlockSteps = F == Format::mxfp8 ? 2 : 1;  // that share a scale vector
};

// Codes are masked at the end of a row; the code 0 is 0 in every format.
template <Format F>
HALFTONE_INLINE __m512i load_codes(const uint8_t* p, __mmask64 mask) {
  if constexpr (F == Format::f16) {
    return bits_as<__m512i>(
        widen_f16(bits_as<u16v>(_mm256_maskz_loadu_epi8(static_cast<__mmask32>(mask), p))));
  } else {
    return _mm512_maskz_loadu_epi8(mask, p);
  }
}

// 16 bytes of codes in each lane to operands. The words of 4-bit codes have an order of their own.
template <Format F>
struct KeyStep {
  __m512i x;
  HALFTONE_INLINE explicit KeyStep(__m512i codes) : x(codes) {}
  HALFTONE_INLINE f32v vector(int v) const {
    if constexpr (KeyCodes<F>::kVectors == 1) return bits_as<f32v>(x);
    const __m512i index = v == 0 ? x : _mm512_srli_epi16(x, static_cast<unsigned>(4 * v));
    return bits_as<f32v>(
        _mm512_permutexvar_epi16(index, load_raw<__m512i>(decode_detail::kE2m1Words.entry)));
  }
};
template <bool kInt8>
struct ByteStep {
  Fp8Bytes x;
  HALFTONE_INLINE explicit ByteStep(__m512i codes) : x(look_up<kInt8>(codes)) {}
  HALFTONE_INLINE f32v vector(int v) const {
    return bits_as<f32v>(v == 0 ? _mm512_unpacklo_epi8(x.low, x.high)
                                : _mm512_unpackhi_epi8(x.low, x.high));
  }
};
template <>
struct KeyStep<Format::fp8_e4m3> : ByteStep<false> {
  using ByteStep::ByteStep;
};
template <>
struct KeyStep<Format::mxfp8> : ByteStep<false> {
  using ByteStep::ByteStep;
};
template <>
struct KeyStep<Format::int8> : ByteStep<true> {
  using ByteStep::ByteStep;
};

// Lane k of x[i] is lane i of key k.
HALFTONE_INLINE void transpose_lanes(__m512i (&x)[4]) {
  const __m512i a = _mm512_shuffle_i64x2(x[0], x[1], 0x44);
  const __m512i b = _mm512_shuffle_i64x2(x[0], x[1], 0xee);
  const __m512i c = _mm512_shuffle_i64x2(x[2], x[3], 0x44);
  const __m512i d = _mm512_shuffle_i64x2(x[2], x[3], 0xee);
  x[0] = _mm512_shuffle_i64x2(a, c, 0x88);
  x[1] = _mm512_shuffle_i64x2(a, c, 0xdd);
  x[2] = _mm512_shuffle_i64x2(b, d, 0x88);
  x[3] = _mm512_shuffle_i64x2(b, d, 0xdd);
}

// Up to four scales of each of four keys, in the elements of the key's lane.
template <Format F>
HALFTONE_INLINE __m512 scales_of(const RowPointer* keys, int64_t offset, int count) {
  // In general registers: small stores that a vector load meets stall it.
  const auto code_of = [&](int k) -> uint64_t {
    const uint8_t* p = keys[k].scales + offset;
    uint32_t code = 0;
    if (count >= 4) {
      std::memcpy(&code, p, 4);
    } else {
      if (count >= 1) code = p[0];
      if (count >= 2) code |= uint32_t{p[1]} << 8;
      if (count >= 3) code |= uint32_t{p[2]} << 16;
    }
    return code;
  };
  const __m128i all = _mm_set_epi64x(static_cast<long long>(code_of(2) | code_of(3) << 32),
                                     static_cast<long long>(code_of(0) | code_of(1) << 32));
  if constexpr (F == Format::nvfp4) {
    // The upper half of each f32 is the bf16 number of its code.
    const auto& t = decode_detail::kFp8Bytes<true>;
    const __m512i code =
        _mm512_mullo_epi32(_mm512_cvtepu8_epi32(all), _mm512_set1_epi32(0x01010101));
    const __m512i low = _mm512_maskz_permutex2var_epi8(0x4444444444444444, _mm512_load_si512(t.low),
                                                       code, _mm512_load_si512(t.low + 64));
    const __m512i high = _mm512_maskz_permutex2var_epi8(
        0x8888888888888888, _mm512_load_si512(t.high), code, _mm512_load_si512(t.high + 64));
    const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000u));
    return bits_as<__m512>((low | high) | (code & sign));
  } else {
    const __m512i code = _mm512_cvtepu8_epi32(all);
    const __m512i power =
        _mm512_max_epu32(_mm512_slli_epi32(code, 23), _mm512_set1_epi32(0x00400000));
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(255));
    return bits_as<__m512>(_mm512_mask_mov_epi32(power, nan, _mm512_set1_epi32(0x7fc00000)));
  }
}
// The scales that belong to the elements of step i.
template <Format F>
HALFTONE_INLINE f32v scale_of_step(const __m512 (&scales)[2], int i) {
  if constexpr (F == Format::nvfp4) {
    const __m512 x = scales[i / 2];
    return bits_as<f32v>(i % 2 == 0 ? _mm512_permute_ps(x, 0x50) : _mm512_permute_ps(x, 0xfa));
  } else {
    const int block = i / KeyCodes<F>::kBlockSteps;
    return bits_as<f32v>(block == 0   ? _mm512_permute_ps(scales[0], 0x00)
                         : block == 1 ? _mm512_permute_ps(scales[0], 0x55)
                         : block == 2 ? _mm512_permute_ps(scales[0], 0xaa)
                                      : _mm512_permute_ps(scales[0], 0xff));
  }
}

// Sums of neighbouring elements: of a in the first half of each lane, of b in the second.
HALFTONE_INLINE f32v fold_lanes(f32v x, f32v y) {
  const auto a = bits_as<__m512>(x), b = bits_as<__m512>(y);
  return bits_as<f32v>(_mm512_shuffle_ps(a, b, 0x88)) +
         bits_as<f32v>(_mm512_shuffle_ps(a, b, 0xdd));
}

// Element r of lane k of x[g] is the product of key 4 g + k and row r; false where a code of int8
// was -128, which no table holds. `q` has the operands of the rows, 64 bytes a vector and row.
template <class Products, Format F>
HALFTONE_INLINE bool dot_keys(const RowPointer* keys, int64_t offset, int64_t scale_offset,
                              int64_t row_bytes, const uint8_t* q, f32v* x, LinesAhead* ahead) {
  using Codes = KeyCodes<F>;
  constexpr int kGroups = Codes::kGroups, kVectors = Codes::kVectors, kBlocks = Codes::kBlocks;
  // Two chains of sums a key and row hide the latency of the products.
  f32v total[kGroups][4] = {}, other[kGroups][4] = {};
  [[maybe_unused]] __m512i most = _mm512_setzero_si512();
  int64_t scales_left = has_blocks(F) ? row_bytes * 8 / element_bits(F) / block_of(F) : 0;
  for (int64_t byte = 0; byte < row_bytes; byte += Codes::kBytes) {
    const int64_t left = row_bytes - byte;
    const __mmask64 mask = left >= Codes::kBytes ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    __m512i codes[kGroups][4];
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        codes[g][k] = load_codes<F>(keys[4 * g + k].data + offset + byte, mask);
      }
      transpose_lanes(codes[g]);
    }
    ahead->step<4 * kGroups * Codes::kBytes / 64>();
    if constexpr (kBlocks == 0) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          f32v key[kGroups];
#pragma GCC unroll 2
          for (int g = 0; g < kGroups; ++g) {
            const KeyStep<F> step(codes[g][i]);
            key[g] = step.vector(v);
            if constexpr (F == Format::int8) most = _mm512_or_si512(most, step.x.magnitude);
          }
#pragma GCC unroll 4
          for (int r = 0; r < 4; ++r, q += 64) {
            const auto row = load_raw<f32v>(q);
#pragma GCC unroll 2
            for (int g = 0; g < kGroups; ++g) {
              f32v& sum = (i * kVectors + v) % 2 == 0 ? total[g][r] : other[g][r];
              sum = multiply_add(Products{}, sum, row, key[g]);
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
      for (int i = 0; i < 4; i += Codes::kBlockSteps) {
        f32v sum[kGroups][4] = {};
#pragma GCC unroll 4
        for (int v = 0; v < kVectors * Codes::kBlockSteps; ++v) {
          f32v key[kGroups];
#pragma GCC unroll 2
          for (int g = 0; g < kGroups; ++g) {
            key[g] = KeyStep<F>(codes[g][i + v / kVectors]).vector(v % kVectors);
          }
#pragma GCC unroll 4
          for (int r = 0; r < 4; ++r, q += 64) {
            const auto row = load_raw<f32v>(q);
#pragma GCC unroll 2
            for (int g = 0; g < kGroups; ++g) {
              sum[g][r] = multiply_add(Products{}, sum[g][r], row, key[g]);
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
    x[g] = fold_lanes(fold_lanes(total[g][0], total[g][1]), fold_lanes(total[g][2], total[g][3]));
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

// Integers of -128 have no entry in the table of magnitudes: their keys are multiplied again.
template <class Products>
void redo_lowest(const RowPointer* keys, int64_t offset, int64_t head_dim, const uint32_t* q,
                 int64_t steps, int64_t rows, float* scores, int64_t stride) {
  if constexpr (Products::kPair == 2) {
    for (int k = 0; k < kLanes; ++k) {
      const uint8_t* codes = keys[k].data + offset;
      __mmask64 lowest = 0;
      for (int64_t i = 0; i < head_dim; i += 64) {
        const __mmask64 mask =
            head_dim - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (head_dim - i)) - 1;
        lowest |= _mm512_cmpeq_epi8_mask(_mm512_maskz_loadu_epi8(mask, codes + i),
                                         _mm512_set1_epi8(-128));
      }
      if (lowest == 0) continue;
      alignas(64) uint16_t key[1024 + 32];
      expand_row<Format::int8>(codes, nullptr, head_dim, 2 * steps, key);
      for (int64_t r = 0; r < rows; ++r) {
        f32v sum = {};
        for (int64_t s = 0; s < steps; s += kLanes) {
          const auto mask =
              static_cast<__mmask16>(steps - s >= kLanes ? 0xffff : (1 << (steps - s)) - 1);
          sum = multiply_add(Products{}, sum,
                             bits_as<f32v>(_mm512_maskz_loadu_epi32(mask, q + r * steps + s)),
                             bits_as<f32v>(_mm512_maskz_loadu_epi32(mask, key + 2 * s)));
        }
        scores[r * stride + k] = reduce_add(sum);
      }
    }
  }
}

// Scores of keys[0 .. count), a multiple of 16, for all rows of all heads: row r of `scores` is
// row r % per_head of head r / per_head. `q` holds the rows (`steps` 32-bit elements), `packed`
// those of pack_queries. While keys[i] are multiplied,
// keys[i + ahead] are asked for.
struct ScoreKeys {
  const AttentionRows& k;
  int64_t head_dim, kv_heads, per_head, steps;
  const uint32_t* q;
  const uint8_t* packed;
  float* scores;
  int64_t stride, ahead;
};

// Bytes of a row of pack_queries: whole vectors of codes of every format, each part in four lanes.
HALFTONE_INLINE constexpr int64_t packed_query_bytes(int64_t head_dim, int pair) {
  return (head_dim + 127) / 128 * 128 * (pair == 2 ? 2 : 4) * 4;
}

template <class Products, Format F>
void score_keys(const ScoreKeys& t, const RowPointer* keys, int64_t count) {
  constexpr int kGroups = KeyCodes<F>::kGroups;
  const int64_t row_bytes = t.head_dim * element_bits(F) / 8;
  const int64_t head_rows = (t.per_head + 3) / 4;
  const int64_t q_bytes = packed_query_bytes(t.head_dim, Products::kPair);
  LinesAhead ahead(t.k, t.kv_heads, row_bytes, keys + t.ahead, keys + t.ahead + count);
  for (int64_t i = 0; i < count; i += kLanes) {
    for (int64_t h = 0; h < t.kv_heads; ++h) {
      const int64_t offset = h * t.k.head_bytes, scale_offset = h * t.k.scale_head_bytes;
      for (int64_t b = 0; b < head_rows; ++b) {
        const uint8_t* q = t.packed + (h * head_rows + b) * 4 * q_bytes;
        f32v x[4];
        bool passed = true;
        for (int g = 0; g < 4; g += kGroups) {
          passed &= dot_keys<Products, F>(keys + i + 4 * g, offset, scale_offset, row_bytes, q,
                                          x + g, &ahead);
        }
        float* scores = t.scores + (h * t.per_head + 4 * b) * t.stride + i;
        const int rows = static_cast<int>(t.per_head - 4 * b < 4 ? t.per_head - 4 * b : 4);
        for (int r = 0; r < rows; ++r) store_raw(scores + r * t.stride, scores_of_row(x, r));
        if constexpr (F == Format::int8) {
          if (passed) continue;
          redo_lowest<Products>(keys + i, offset, t.head_dim,
                                t.q + (h * t.per_head + 4 * b) * t.steps, t.steps, rows, scores,
                                t.stride);
        }
      }
    }
  }
}

// Rows of `steps` 32-bit elements, padded with zeros, in blocks of 4: 16 bytes of each row in turn,
// in all lanes of a vector. 4-bit codes are expanded by nibbles of words: word 8 v + j of 32 is
// element 4 j + v.
template <bool kNibbles>
void pack_queries(const uint32_t* q, int64_t steps, int64_t kv_heads, int64_t per_head,
                  int64_t row_bytes, uint8_t* packed) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  4,  8,  12, 16, 20, 24, 28, 1,  5,  9,
                                                      13, 17, 21, 25, 29, 2,  6,  10, 14, 18, 22,
                                                      26, 30, 3,  7,  11, 15, 19, 23, 27, 31};
  for (int64_t h = 0; h < kv_heads; ++h) {
    for (int64_t r = 0; r < (per_head + 3) / 4 * 4; ++r) {
      const uint32_t* from = q + (h * per_head + r) * steps;
      uint8_t* to = packed + (h * ((per_head + 3) / 4) + r / 4) * 4 * row_bytes + r % 4 * 64;
      for (int64_t at = 0; at < row_bytes / 16; at += kLanes) {
        const int64_t left = r < per_head ? steps - at : 0;
        const auto mask = static_cast<__mmask16>(left >= kLanes ? 0xffff
                                                 : left <= 0    ? 0
                                                                : (1 << left) - 1);
        __m512i x = _mm512_maskz_loadu_epi32(mask, from + at);
        if constexpr (kNibbles) x = _mm512_permutexvar_epi16(load_raw<__m512i>(kOrder), x);
        alignas(64) uint8_t parts[64];
        store_raw(parts, x);
        for (int i = 0; i < 4; ++i, to += 256) {
          store_raw(to, _mm512_broadcast_i32x4(load_raw<__m128i>(parts + 16 * i)));
        }
      }
    }
  }
}

// The kernel of a format; null where there is none.
struct KeyScorer {
  void (*score)(const ScoreKeys&, const RowPointer* keys, int64_t count);
  void (*pack)(const uint32_t* q, int64_t steps, int64_t kv_heads, int64_t per_head,
               int64_t row_bytes, uint8_t* packed);
};
template <class Products, Format F>
KeyScorer key_scorer() {
  return {score_keys<Products, F>, pack_queries<element_bits(F) == 4>};
}
template <class Products>
KeyScorer key_scorer_of(Format format) {
  if constexpr (Products::kPair == 1) {
    if (format == Format::f32) return key_scorer<Products, Format::f32>();
    if (format == Format::f16) return key_scorer<Products, Format::f16>();
  } else {
    if (format == Format::bf16) return key_scorer<Products, Format::bf16>();
    if (format == Format::fp8_e4m3) return key_scorer<Products, Format::fp8_e4m3>();
    if (format == Format::int8) return key_scorer<Products, Format::int8>();
    if (format == Format::mxfp8) return key_scorer<Products, Format::mxfp8>();
    if (format == Format::mxfp4) return key_scorer<Products, Format::mxfp4>();
    if (format == Format::nvfp4) return key_scorer<Products, Format::nvfp4>();
  }
  return {nullptr, nullptr};
}

}  // namespace halftone::HALFTONE_LEVEL
#endif

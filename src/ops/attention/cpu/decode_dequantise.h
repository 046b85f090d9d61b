// Keys as operands of the Q K^T of decode on the CPU, for ISA levels with VDPBF16PS: 16 bytes of
// each of four keys in a vector, dequantised in registers, their block scales, and queries permuted
// to the order of dequantised keys.
#pragma once
#include "ops/attention/cpu/gemm.h"
#include "ops/attention/cpu/rows.h"

#if defined(__AVX512BF16__)
namespace halftone::HALFTONE_LEVEL {

// How a row of keys is read: kBytes at a time make four vectors ("steps"), of which each becomes
// kVectors operands; kGroups * 4 keys at a time, as many as the registers hold.
template <Format F>
struct KeyFormat {
  static constexpr int kBytes = F == Format::f16 ? 32 : 64;
  static constexpr int kVectors = element_bits(F) == 4 ? 4 : element_bits(F) == 8 ? 2 : 1;
  static constexpr int kGroups = 2;
  static constexpr int kBlocks = has_blocks(F) ? kBytes * 8 / element_bits(F) / block_of(F) : 0;
  static constexpr int kBlockSteps = F == Format::mxfp8 ? 2 : 1;  // that share a scale vector
};

// Loads are masked at the end of a row; all bits 0 is 0 in every format.
template <Format F>
HALFTONE_INLINE __m512i load_packed(const uint8_t* p, __mmask64 mask) {
  if constexpr (F == Format::f16) {
    return bits_as<__m512i>(
        widen_f16(bits_as<u16v>(_mm256_maskz_loadu_epi8(static_cast<__mmask32>(mask), p))));
  } else {
    return _mm512_maskz_loadu_epi8(mask, p);
  }
}

// 16 bytes in each lane to operands. The words of 4-bit formats have an order of their own.
template <Format F>
struct KeyStep {
  __m512i x;
  HALFTONE_INLINE explicit KeyStep(__m512i packed) : x(packed) {}
  HALFTONE_INLINE f32v vector(int v) const {
    if constexpr (KeyFormat<F>::kVectors == 1) return bits_as<f32v>(x);
    const __m512i index = v == 0 ? x : _mm512_srli_epi16(x, static_cast<unsigned>(4 * v));
    return bits_as<f32v>(
        _mm512_permutexvar_epi16(index, load_raw<__m512i>(decode_detail::kE2m1Words.entry)));
  }
};
template <bool kInt8>
struct ByteStep {
  Fp8Bytes x;
  HALFTONE_INLINE explicit ByteStep(__m512i packed) : x(look_up<kInt8>(packed)) {}
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
  // In general registers: a vector load of bytes just stored one by one would stall.
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
  if constexpr (scale_format_of(F) == Format::fp8_e4m3) {
    // The upper half of each FP32 is the BF16 value of its encoded scale.
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
  if constexpr (scale_group_of(F) == 16) {
    const __m512 x = scales[i / 2];
    return bits_as<f32v>(i % 2 == 0 ? _mm512_permute_ps(x, 0x50) : _mm512_permute_ps(x, 0xfa));
  } else {
    const int block = i / KeyFormat<F>::kBlockSteps;
    return bits_as<f32v>(block == 0   ? _mm512_permute_ps(scales[0], 0x00)
                         : block == 1 ? _mm512_permute_ps(scales[0], 0x55)
                         : block == 2 ? _mm512_permute_ps(scales[0], 0xaa)
                                      : _mm512_permute_ps(scales[0], 0xff));
  }
}

// 16 bytes of a query in all four lanes, as multiplied by a vector of keys: pairs, or the floats of
// their lower and of their upper words.
template <class Dot>
struct QueryPart {
  static constexpr int64_t kBytes = 64;
  f32v x;
  HALFTONE_INLINE explicit QueryPart(const uint8_t* packed) : x(load_raw<f32v>(packed)) {}
  static HALFTONE_INLINE void pack(f32v lanes, uint8_t* packed) { store_raw(packed, lanes); }
};
template <>
struct QueryPart<SplitBf16Dot> {
  static constexpr int64_t kBytes = 128;
  f32v low, high;
  HALFTONE_INLINE explicit QueryPart(const uint8_t* packed)
      : low(load_raw<f32v>(packed)), high(load_raw<f32v>(packed + 64)) {}
  static HALFTONE_INLINE void pack(f32v lanes, uint8_t* packed) {
    store_raw(packed, SplitBf16Dot::low(lanes));
    store_raw(packed + 64, SplitBf16Dot::high(lanes));
  }
};

HALFTONE_INLINE f32v multiply_add(const QueryPart<F32Dot>& q, f32v key, f32v c) {
  return fma(q.x, key, c);
}
HALFTONE_INLINE f32v multiply_add(const QueryPart<Bf16Dot>& q, f32v key, f32v c) {
  return bits_as<f32v>(
      _mm512_dpbf16_ps(bits_as<__m512>(c), bits_as<__m512bh>(q.x), bits_as<__m512bh>(key)));
}
HALFTONE_INLINE f32v multiply_add(const QueryPart<SplitBf16Dot>& q, f32v key, f32v c) {
  return fma(q.high, SplitBf16Dot::high(key), fma(q.low, SplitBf16Dot::low(key), c));
}

// Bytes of a row of pack_queries: whole vectors of every format, each part in four lanes.
template <class Dot>
HALFTONE_INLINE constexpr int64_t packed_query_bytes(int64_t head_dim) {
  return (head_dim + 127) / 128 * 128 / Dot::kPair * 4 / 16 * QueryPart<Dot>::kBytes;
}

// Rows of `steps` 32-bit elements, padded with zeros, in blocks of 4: 16 bytes of each row in turn,
// in all lanes of a vector. 4-bit values are dequantised by nibbles of words: word 8 v + j of 32 is
// element 4 j + v.
template <class Dot, bool kNibbles>
void pack_queries(const uint32_t* q, int64_t steps, int64_t kv_heads, int64_t per_head,
                  int64_t head_dim, uint8_t* packed) {
  using Part = QueryPart<Dot>;
  const int64_t row_bytes = packed_query_bytes<Dot>(head_dim);
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  4,  8,  12, 16, 20, 24, 28, 1,  5,  9,
                                                      13, 17, 21, 25, 29, 2,  6,  10, 14, 18, 22,
                                                      26, 30, 3,  7,  11, 15, 19, 23, 27, 31};
  for (int64_t h = 0; h < kv_heads; ++h) {
    for (int64_t r = 0; r < (per_head + 3) / 4 * 4; ++r) {
      const uint32_t* from = q + (h * per_head + r) * steps;
      uint8_t* to =
          packed + (h * ((per_head + 3) / 4) + r / 4) * 4 * row_bytes + r % 4 * Part::kBytes;
      for (int64_t at = 0; at < row_bytes / Part::kBytes * 4; at += kLanes) {
        const int64_t left = r < per_head ? steps - at : 0;
        const auto mask = static_cast<__mmask16>(left >= kLanes ? 0xffff
                                                 : left <= 0    ? 0
                                                                : (1 << left) - 1);
        __m512i x = _mm512_maskz_loadu_epi32(mask, from + at);
        if constexpr (kNibbles) x = _mm512_permutexvar_epi16(load_raw<__m512i>(kOrder), x);
        alignas(64) uint8_t parts[64];
        store_raw(parts, x);
        for (int i = 0; i < 4; ++i, to += 4 * Part::kBytes) {
          const __m512i lanes = _mm512_broadcast_i32x4(load_raw<__m128i>(parts + 16 * i));
          Part::pack(bits_as<f32v>(lanes), to);
        }
      }
    }
  }
}

}  // namespace halftone::HALFTONE_LEVEL
#endif

// Products of bf16 activations by the bf16 dot-product instruction, two elements of K a lane.
// Every weight of 8 bits or fewer is a bf16 number exactly, and bf16 products are exact in f32, so
// only the order of the sums differs from the f32 kernels, and that VDPBF16PS reads and writes
// subnormals as zero: operands below 2^-126 count as 0, and so do sums that stay below it.
#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

// GCC 12 takes the undefined operand of its own AVX-512 intrinsics for a mistake.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "ops/product/finish.h"
#include "ops/product/tile.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

using product::Kernels;

typedef uint16_t words __attribute__((vector_size(64)));

// bf16 of the 128 magnitudes of a byte format, split into the bytes of the result.
struct ByteTables {
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t high[128];
};
constexpr uint16_t bf16_bits(float x) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
}
constexpr float minifloat(int code, int mantissa_bits, int bias) {
  const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const int whole = exponent > 0 ? mantissa + (1 << mantissa_bits) : mantissa;
  float value = static_cast<float>(whole);
  int power = (exponent > 0 ? exponent : 1) - bias - mantissa_bits;
  for (; power > 0; --power) value *= 2;
  for (; power < 0; ++power) value /= 2;
  return value;
}
constexpr ByteTables byte_tables(Code code) {
  ByteTables t{};
  for (int i = 0; i < 128; ++i) {
    uint16_t b = 0;
    if (code == Code::e4m3) {
      b = i == 127 ? 0x7fc0 : bf16_bits(minifloat(i, 3, 7));
    } else if (code == Code::e5m2) {
      b = i == 124 ? 0x7f80 : i > 124 ? 0x7fc0 : bf16_bits(minifloat(i, 2, 15));
    } else {
      b = bf16_bits(static_cast<float>(i));
    }
    t.low[i] = static_cast<uint8_t>(b);
    t.high[i] = static_cast<uint8_t>(b >> 8);
  }
  return t;
}
template <Code C>
constexpr ByteTables kByteTables = byte_tables(C);

// Bytes of 128 codes that become words of steps 0 and 1 (and, plus 2, of steps 2 and 3): word w of
// step j is byte 4w + j, as unpacking the low and high halves of 128-bit lanes wants them.
struct Arrangement {
  alignas(64) uint8_t bytes[2][64];
};
constexpr Arrangement arrangement() {
  Arrangement a{};
  for (int pair = 0; pair < 2; ++pair) {
    for (int lane = 0; lane < 4; ++lane) {
      for (int i = 0; i < 16; ++i) {
        a.bytes[pair][16 * lane + i] =
            static_cast<uint8_t>(4 * (8 * lane + i % 8) + 2 * pair + i / 8);
      }
    }
  }
  return a;
}
constexpr Arrangement kArrangement = arrangement();

struct WordTable {
  alignas(64) uint16_t words[32];
};
constexpr WordTable word_table(Code code) {
  constexpr float kE2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  WordTable t{};
  for (int i = 0; i < 32; ++i) {
    float x = 0;
    if (code == Code::e2m1) {
      x = (i & 8) != 0 ? -kE2m1[i & 7] : kE2m1[i & 7];
    } else if (code == Code::int4) {
      x = static_cast<float>((i & 15) - 8);
    } else {
      x = static_cast<float>(i - 15);  // index: code + 15 - zero point
    }
    t.words[i] = bf16_bits(x);
  }
  return t;
}
template <Code C>
constexpr WordTable kWordTable = word_table(C);

struct Bf16 {
  typedef words Vector;
  static constexpr int kSteps = 4;
  static constexpr int kBlockChunks = 8;  // a strip takes 16 KiB

  HALFTONE_INLINE static f32v multiply_add(words w, words x, f32v acc) {
    return bits_as<f32v>(
        _mm512_dpbf16_ps(bits_as<__m512>(acc), bits_as<__m512bh>(w), bits_as<__m512bh>(x)));
  }

  // Word w of step j is element 4w + j of the chunk (octets), or 32 j + w (bf16).
  template <Code C>
  HALFTONE_INLINE static void expand(const uint8_t* p, const int32_t* zeros, words out[4]) {
    if constexpr (C == Code::bf16) {
      for (int j = 0; j < 4; ++j) out[j] = load_raw<words>(p + 64 * j);
    } else if constexpr (kBits<C> == 8) {
      expand_bytes<C>(p, out);
    } else {
      const __m512i raw = load_raw<__m512i>(p);
      const __m512i table = load_raw<__m512i>(kWordTable<C>.words);
      __m512i shift = _mm512_setzero_si512();
      if constexpr (C == Code::int4_asymmetric) {
        const __m512i zero = load_raw<__m512i>(zeros);
        shift = _mm512_sub_epi16(_mm512_set1_epi16(15),
                                 _mm512_or_si512(zero, _mm512_slli_epi32(zero, 16)));
      }
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        __m512i index = _mm512_srli_epi16(raw, static_cast<unsigned>(4 * j));
        if constexpr (C == Code::int4_asymmetric) {
          index = _mm512_add_epi16(_mm512_and_si512(index, _mm512_set1_epi16(15)), shift);
        }
        out[j] = bits_as<words>(_mm512_permutexvar_epi16(index, table));
      }
    }
  }

 private:
  template <Code C>
  HALFTONE_INLINE static void expand_bytes(const uint8_t* p, words out[4]) {
    const __m512i a = load_raw<__m512i>(p), b = load_raw<__m512i>(p + 64);
    const ByteTables& tables = kByteTables<C>;
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) {
      const __m512i codes =
          _mm512_permutex2var_epi8(a, load_raw<__m512i>(kArrangement.bytes[pair]), b);
      const __m512i magnitude = C == Code::int8 ? _mm512_abs_epi8(codes) : codes;
      const __m512i low = _mm512_permutex2var_epi8(load_raw<__m512i>(tables.low), magnitude,
                                                   load_raw<__m512i>(tables.low + 64));
      __m512i high = _mm512_permutex2var_epi8(load_raw<__m512i>(tables.high), magnitude,
                                              load_raw<__m512i>(tables.high + 64));
      // high | (codes & 0x80): the sign.
      high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-128), 0xf8);
      if constexpr (C == Code::int8) {
        // |-128| is 128, beyond the table, which read entry 0: its low byte is right.
        const __mmask64 lowest = _mm512_movepi8_mask(magnitude);
        high = _mm512_mask_mov_epi8(high, lowest, _mm512_set1_epi8(static_cast<char>(0xc3)));
      }
      out[2 * pair] = bits_as<words>(_mm512_unpacklo_epi8(low, high));
      out[2 * pair + 1] = bits_as<words>(_mm512_unpackhi_epi8(low, high));
    }
  }
};
static_assert(Bf16::kBlockChunks * Bf16::kSteps * kTileColumns * sizeof(words) <=
              product::kStripBytes);

void pack(const void* x, Format, bool octets, int64_t k, void* out, int64_t stride) {
  const auto* from = static_cast<const uint16_t*>(x);
  for (int64_t k0 = 0, chunk = 0; k0 < k; k0 += kChunk, ++chunk) {
    uint16_t values[kChunk] = {};
    const int64_t count = k - k0 < kChunk ? k - k0 : kChunk;
    std::memcpy(values, from + k0, static_cast<size_t>(count) * 2);
    auto* to = reinterpret_cast<uint16_t*>(static_cast<unsigned char*>(out) +
                                           chunk / Bf16::kBlockChunks * stride) +
               chunk % Bf16::kBlockChunks * kChunk;
    if (octets) {
      for (int j = 0; j < 4; ++j) {
        for (int w = 0; w < 32; ++w) to[32 * j + w] = values[4 * w + j];
      }
    } else {
      std::memcpy(to, values, sizeof values);
    }
  }
}

template <Code C>
void gemv_code(const Weights& w, int64_t n0, int64_t n1, const void* x, float* sums) {
  if (scaled_in_row(w)) {
    gemv_rows<Bf16, C, true>(w, n0, n1, x, sums);
  } else {
    gemv_rows<Bf16, C, false>(w, n0, n1, x, sums);
  }
}

void gemv(const Weights& w, int64_t n0, int64_t n1, const void* x, float* sums) {
  switch (w.code) {
    case Code::e4m3:
      return gemv_code<Code::e4m3>(w, n0, n1, x, sums);
    case Code::e5m2:
      return gemv_code<Code::e5m2>(w, n0, n1, x, sums);
    case Code::int8:
      return gemv_code<Code::int8>(w, n0, n1, x, sums);
    case Code::e2m1:
      return gemv_code<Code::e2m1>(w, n0, n1, x, sums);
    case Code::int4:
      return gemv_code<Code::int4>(w, n0, n1, x, sums);
    case Code::int4_asymmetric:
      return gemv_rows<Bf16, Code::int4_asymmetric, true>(w, n0, n1, x, sums);
    default:
      return gemv_rows<Bf16, Code::bf16, false>(w, n0, n1, x, sums);
  }
}

void expand(const Weights& w, int64_t n0, int64_t rows, int64_t block, void* strip, float* scales) {
  switch (w.code) {
    case Code::e4m3:
      return expand_rows<Bf16, Code::e4m3>(w, n0, rows, block, strip, scales);
    case Code::e5m2:
      return expand_rows<Bf16, Code::e5m2>(w, n0, rows, block, strip, scales);
    case Code::int8:
      return expand_rows<Bf16, Code::int8>(w, n0, rows, block, strip, scales);
    case Code::e2m1:
      return expand_rows<Bf16, Code::e2m1>(w, n0, rows, block, strip, scales);
    case Code::int4:
      return expand_rows<Bf16, Code::int4>(w, n0, rows, block, strip, scales);
    case Code::int4_asymmetric:
      return expand_rows<Bf16, Code::int4_asymmetric>(w, n0, rows, block, strip, scales);
    default:
      return expand_rows<Bf16, Code::bf16>(w, n0, rows, block, strip, scales);
  }
}

void finish(const product::Finish& f) { finish_row(f); }
void swiglu(const float* gate, const float* up, int64_t count, void* out, Format out_format) {
  swiglu_row(gate, up, count, out, out_format);
}

}  // namespace

extern const Kernels bf16_kernels;
const Kernels bf16_kernels = {kLanes, kChunk, Bf16::kBlockChunks, 2,      kTileColumns, pack,
                              gemv,   expand, multiply<Bf16>,     finish, swiglu};

}  // namespace halftone::HALFTONE_LEVEL

#endif

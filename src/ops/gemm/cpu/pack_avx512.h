// Packs a chunk of x from natural order to the order of steps with AVX-512. Included by ISA-level
// sources.
#pragma once
#include "simd/vec.h"

#if defined(__AVX512BW__)
namespace halftone::HALFTONE_LEVEL {

// Step j of a chunk as four 128-bit quarters, quarter q being permuted from vectors 2q and 2q + 1
// of x. `Element` is uint16_t or uint32_t; element i of a quarter of step j is element source(i, j)
// of the two vectors.
template <class Element>
struct StepOrder {
  static constexpr int kQuarter = 16 / sizeof(Element);
  alignas(64) Element index[2][4 * kQuarter];
  template <class Source>
  constexpr explicit StepOrder(Source source) : index() {
    for (int j = 0; j < 8; ++j) {
      for (int i = 0; i < kQuarter; ++i) {
        index[j / 4][j % 4 * kQuarter + i] = static_cast<Element>(source(i, j));
      }
    }
  }
};

template <class Element>
HALFTONE_INLINE void pack_steps(const void* x, const StepOrder<Element>& order, void* out) {
  const auto* from = static_cast<const unsigned char*>(x);
  auto* to = static_cast<unsigned char*>(out);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m512i index = load_raw<__m512i>(order.index[half]);
    __m512i quarter[4];  // of steps 4 half .. 4 half + 3
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const __m512i a = load_raw<__m512i>(from + 128 * q),
                    b = load_raw<__m512i>(from + 128 * q + 64);
      quarter[q] = sizeof(Element) == 2 ? _mm512_permutex2var_epi16(a, index, b)
                                        : _mm512_permutex2var_epi32(a, index, b);
    }
    // The 4 x 4 quarters transposed.
    const __m512i t0 = _mm512_shuffle_i64x2(quarter[0], quarter[1], 0x44);
    const __m512i t1 = _mm512_shuffle_i64x2(quarter[0], quarter[1], 0xee);
    const __m512i t2 = _mm512_shuffle_i64x2(quarter[2], quarter[3], 0x44);
    const __m512i t3 = _mm512_shuffle_i64x2(quarter[2], quarter[3], 0xee);
    store_raw(to + 256 * half, _mm512_shuffle_i64x2(t0, t2, 0x88));
    store_raw(to + 256 * half + 64, _mm512_shuffle_i64x2(t0, t2, 0xdd));
    store_raw(to + 256 * half + 128, _mm512_shuffle_i64x2(t1, t3, 0x88));
    store_raw(to + 256 * half + 192, _mm512_shuffle_i64x2(t1, t3, 0xdd));
  }
}

}  // namespace halftone::HALFTONE_LEVEL
#endif

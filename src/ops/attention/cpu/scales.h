// Block scales with keys in the lanes, for ISA levels with VDPBF16PS.
#pragma once
#include "simd/decode.h"

#if defined(__AVX512BF16__)
namespace halftone::HALFTONE_LEVEL {

// Up to eight encoded scales of each of 16 rows: byte j of encoded[i] is scale first + i of row j.
struct EncodedScales {
  __m128i encoded[8];
};
HALFTONE_INLINE void load_encoded_scales(const uint8_t* const* rows, int64_t first, int64_t count,
                                         EncodedScales* scales) {
  alignas(64) uint8_t bytes[16][8] = {};
  for (int j = 0; j < 16; ++j) {
    if (count >= 8) {
      std::memcpy(bytes[j], rows[j] + first, 8);
    } else if (count == 4) {
      std::memcpy(bytes[j], rows[j] + first, 4);
    } else {
      for (int64_t i = 0; i < count; ++i) bytes[j][i] = rows[j][first + i];
    }
  }
  alignas(16) static constexpr uint8_t kColumn[16] = {0,  8,  16, 24, 32, 40,  48,  56,
                                                      64, 72, 80, 88, 96, 104, 112, 120};
  const __m512i low = load_raw<__m512i>(bytes[0]), high = load_raw<__m512i>(bytes[8]);
  const __m512i column = _mm512_castsi128_si512(load_raw<__m128i>(kColumn));
  for (int i = 0; i < 8; ++i) {
    const __m512i index = _mm512_add_epi8(column, _mm512_set1_epi8(static_cast<char>(i)));
    scales->encoded[i] = _mm512_castsi512_si128(_mm512_permutex2var_epi8(low, index, high));
  }
}

// Hides the origin of a pointer: GCC otherwise keeps a register for every offset from it.
template <class T>
HALFTONE_INLINE const T* opaque(const T* pointer) {
  asm("" : "+r"(pointer));
  return pointer;
}

}  // namespace halftone::HALFTONE_LEVEL
#endif

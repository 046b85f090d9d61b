// Stores past the caches.
#pragma once
#include "simd/lanes.h"

namespace halftone::HALFTONE_LEVEL {

// Whole lines from a buffer in the first-level cache to memory, past the other levels.
HALFTONE_INLINE void stream_lines(const uint8_t* from, int64_t bytes, uint8_t* to) {
#if defined(__AVX512F__)
  for (int64_t i = 0; i < bytes; i += 64) {
    _mm512_stream_si512(static_cast<__m512i*>(static_cast<void*>(to + i)),
                        load_raw<__m512i>(from + i));
  }
#elif defined(__x86_64__)
  for (int64_t i = 0; i < bytes; i += 16) {
    _mm_stream_si128(static_cast<__m128i*>(static_cast<void*>(to + i)),
                     load_raw<__m128i>(from + i));
  }
#else
  std::memcpy(to, from, static_cast<size_t>(bytes));
#endif
}

}  // namespace halftone::HALFTONE_LEVEL

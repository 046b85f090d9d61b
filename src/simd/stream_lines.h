// Stores past the caches.
#pragma once
#include "simd/lanes.h"

namespace halftone::HALFTONE_LEVEL {

// Stores a vector past the caches; p is aligned to its size. A fence follows on this thread.
template <class V>
HALFTONE_INLINE void stream_raw(void* p, V v) {
#if defined(__AVX512F__)
  if constexpr (sizeof v == 64) {
    return _mm512_stream_si512(static_cast<__m512i*>(p), bits_as<__m512i>(v));
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof v == 32) {
    return _mm256_stream_si256(static_cast<__m256i*>(p), bits_as<__m256i>(v));
  }
#endif
#if defined(__x86_64__)
  if constexpr (sizeof v == 16) {
    return _mm_stream_si128(static_cast<__m128i*>(p), bits_as<__m128i>(v));
  }
  if constexpr (sizeof v == 8) {
    return _mm_stream_si64(static_cast<long long*>(p), bits_as<long long>(v));
  }
#endif
  store_raw(p, v);
}
template <class V>
HALFTONE_INLINE void write_raw(void* p, V v, bool streamed) {
  streamed ? stream_raw(p, v) : store_raw(p, v);
}

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

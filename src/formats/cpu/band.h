// Quantises blocks of several rows, row by row through the whole band of blocks, so that memory is
// read in order once and from the cache the second time.
#pragma once
#include "formats/cpu/encode.h"
#include "formats/kernels.h"

namespace halftone::HALFTONE_LEVEL {

// Raw magnitudes of one vector of the source, and their maxima.
template <Format S>
struct RawMagnitudes {
  static constexpr int kStep = S == Format::f32 ? kLanes : 2 * kLanes;
  typedef int16_t i16x2 __attribute__((vector_size(kLanes * 4)));

  i32v largest{};
  HALFTONE_INLINE void add(const void* x, int64_t i) {
    if constexpr (S == Format::f32) {
      largest = max(largest, load_raw<i32v>(static_cast<const float*>(x) + i) & 0x7fffffff);
    } else {
      const auto magnitude = load_raw<i16x2>(static_cast<const uint16_t*>(x) + i) & 0x7fff;
      const auto best = bits_as<i16x2>(largest);
#if defined(__AVX512BW__)
      largest = bits_as<i32v>(
          _mm512_maskz_max_epi16(0xffffffffu, bits_as<__m512i>(magnitude), bits_as<__m512i>(best)));
#else
      largest = bits_as<i32v>(magnitude > best ? magnitude : best);
#endif
    }
  }
  HALFTONE_INLINE void add_partial(const void* x, int64_t i, int64_t count) {
    unsigned char copy[kLanes * 4] = {};
    std::memcpy(copy, static_cast<const char*>(x) + i * plain_bytes(S),
                static_cast<size_t>(count * plain_bytes(S)));
    add(copy, 0);
  }
  HALFTONE_INLINE uint32_t bits() const {
    if constexpr (S == Format::f32) {
      return largest_lane(bits_as<u32v>(largest));
    } else {
      u16v parts[2];
      std::memcpy(parts, &largest, sizeof largest);
      const f32v a = S == Format::bf16 ? widen_bf16(parts[0]) : widen_f16(parts[0]);
      const f32v b = S == Format::bf16 ? widen_bf16(parts[1]) : widen_f16(parts[1]);
      return largest_lane(bits_as<u32v>(max(bits_as<i32v>(a), bits_as<i32v>(b))));
    }
  }
};

// Columns begin .. end of the band, at most kBandBlocks blocks; next: as many follow.
inline constexpr int kBandBlocks = 16, kRowsAhead = 4;
template <Format S, Format T>
HALFTONE_INLINE bool quantize_band_part(const Recipe& recipe, const Band& band, int64_t group,
                                        int64_t begin, int64_t end, bool next) {
  RawMagnitudes<S> largest[kBandBlocks];
  constexpr int kStep = RawMagnitudes<S>::kStep;
  for (int64_t row = 0; row < band.rows; ++row) {
    const char* x = band.x + row * band.stride;
    RawMagnitudes<S>* block = largest;
    for (int64_t column = begin; column < end; column += group, ++block) {
      const int64_t last = column + group < end ? column + group : end;
      RawMagnitudes<S> of = *block;
      int64_t i = column;
      for (; i + kStep <= last; i += kStep) {
        // Rows ahead: only a strip of each is read, too short for the prefetcher.
        __builtin_prefetch(x + kRowsAhead * band.stride + i * plain_bytes(S));
        of.add(x, i);
      }
      if (i < last) of.add_partial(x, i, last - i);
      *block = of;
    }
  }
  BlockScale scale[kBandBlocks];
  bool fits = true;
  int blocks = 0;
  for (int64_t column = begin; column < end; column += group, ++blocks) {
    const uint32_t amax = largest[blocks].bits();
    scale[blocks] = amax < kInfinityBits ? block_scale(recipe, amax) : poisoned_scale(recipe);
    fits &= poisoned(scale[blocks]) || scale[blocks].value < bits_float(kInfinityBits);
    store_scale(recipe.scale_format, band.scales, column / group, scale[blocks].code);
  }
  for (int64_t row = 0; row < band.rows; ++row) {
    const char* x = band.x + row * band.stride;
    uint8_t* codes = band.codes + row * band.codes_stride;
    for (int block = 0; block < blocks; ++block) {
      const int64_t column = begin + block * group;
      const int64_t n = group < end - column ? group : end - column;
      if (poisoned(scale[block])) {
        std::memset(codes + column, 0, static_cast<size_t>(n));
      } else {
        encode_past_caches<S, T>(x, column, n, scale[block].multiplier, 0, codes + column,
                                 recipe.streamed, next ? (end - begin) * plain_bytes(S) : 0);
      }
    }
  }
  return fits;
}

template <Format S, Format T>
HALFTONE_INLINE bool quantize_band_as(const Recipe& recipe, const Band& band) {
  const int64_t group =
      recipe.group > 0 && recipe.group < band.columns ? recipe.group : band.columns;
  bool fits = true;
  const int64_t blocks = band.part / group;
  const int64_t part = (blocks < 1 ? 1 : blocks < kBandBlocks ? blocks : kBandBlocks) * group;
  for (int64_t begin = 0; begin < band.columns; begin += part) {
    const int64_t end = begin + part;
    const bool last = end >= band.columns;
    fits &= quantize_band_part<S, T>(recipe, band, group, begin, last ? band.columns : end, !last);
  }
  return fits;
}

}  // namespace halftone::HALFTONE_LEVEL

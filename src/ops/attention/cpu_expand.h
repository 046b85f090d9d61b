// Rows of every operand format as f32 or bf16. Every product of an element and its block scale is
// exact in bf16 (at most 7 significant bits); scales of a whole row stay outside.
#pragma once
#include "ops/attention/cpu.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

HALFTONE_INLINE f32v decode_e4m3(u8v code) {
  const u32v c = __builtin_convertvector(code, u32v);
  const u32v magnitude = c & 0x7fu;
  // Sets exponent and mantissa; the factor 2^120 moves the bias and is exact for subnormals too.
  const f32v finite = bits_as<f32v>(magnitude << 20) * broadcast(0x1p120f);
  const f32v value = select(bits_as<i32v>(magnitude == broadcast_u32(0x7f)),
                            broadcast(__builtin_nanf("")), finite);
  return bits_as<f32v>(bits_as<u32v>(value) | ((c & 0x80u) << 24));
}

HALFTONE_INLINE float decode_e4m3_scale(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu;
  const float value = bits_as<float>(magnitude << 20) * 0x1p120f;
  return magnitude == 0x7f ? __builtin_nanf("") : (code & 0x80) != 0 ? -value : value;
}

HALFTONE_INLINE float decode_ue8m0_scale(uint8_t code) {
  if (code == 0) return bits_as<float>(uint32_t{0x00400000});
  return code == 255 ? __builtin_nanf("") : bits_as<float>(static_cast<uint32_t>(code) << 23);
}

// kLanes codes of 4 bits, the first in the low nibble of *p. Magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6:
// code 1 is the subnormal of a format with one mantissa bit, so the factor 2^126 settles it too.
HALFTONE_INLINE f32v decode_e2m1(const uint8_t* p) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, p, kLanes / 2);
  u8v codes;
  for (int i = 0; i < kLanes; ++i) codes[i] = static_cast<uint8_t>((bytes >> (4 * i)) & 15);
  const u32v c = __builtin_convertvector(codes, u32v);
  const f32v value = bits_as<f32v>((c & 7u) << 22) * broadcast(0x1p126f);
  return bits_as<f32v>(bits_as<u32v>(value) | ((c & 8u) << 28));
}

// kLanes elements of a row from element i; `scales` are those of the row's blocks. A vector never
// straddles blocks: blocks are 16 or 32 long, vectors at most 16.
template <Format F>
HALFTONE_INLINE f32v expand(const uint8_t* row, const uint8_t* scales, int64_t i) {
  if constexpr (F == Format::f32 || F == Format::f16 || F == Format::bf16) {
    return load<F>(row, i);
  } else if constexpr (F == Format::fp8_e4m3) {
    return decode_e4m3(load_raw<u8v>(row + i));
  } else if constexpr (F == Format::int8) {
    typedef int8_t i8v __attribute__((vector_size(kLanes)));
    return __builtin_convertvector(load_raw<i8v>(row + i), f32v);
  } else if constexpr (F == Format::mxfp8) {
    return decode_e4m3(load_raw<u8v>(row + i)) * broadcast(decode_ue8m0_scale(scales[i / 32]));
  } else if constexpr (F == Format::mxfp4) {
    return decode_e2m1(row + i / 2) * broadcast(decode_ue8m0_scale(scales[i / 32]));
  } else {
    static_assert(F == Format::nvfp4);
    return decode_e2m1(row + i / 2) * broadcast(decode_e4m3_scale(scales[i / 16]));
  }
}

constexpr int element_bits(Format f) {
  return f == Format::f32                           ? 32
         : f == Format::f16 || f == Format::bf16    ? 16
         : f == Format::mxfp4 || f == Format::nvfp4 ? 4
                                                    : 8;
}

// is_block of dtype.h, inlined at every optimisation level.
HALFTONE_INLINE constexpr bool has_blocks(Format f) {
  return f == Format::mxfp8 || f == Format::mxfp4 || f == Format::nvfp4;
}

HALFTONE_INLINE void store_expanded(float* out, f32v x) { store_raw(out, x); }
HALFTONE_INLINE void store_expanded(uint16_t* out, f32v x) { store_raw(out, narrow_bf16(x)); }

// `count` elements of a row to Element (float or bf16), zeros up to `padded`. `out` has room for a
// whole vector at the end.
template <Format F, class Element>
void expand_row(const uint8_t* row, const uint8_t* scales, int64_t count, int64_t padded,
                Element* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_expanded(out + i, expand<F>(row, scales, i));
  if (i < count) {
    // The last elements go through a copy, so that nothing beyond the row is read.
    uint8_t copy[64] = {};
    const int64_t bytes = ((count - i) * element_bits(F) + 7) / 8;
    __builtin_memcpy(copy, row + i * element_bits(F) / 8, static_cast<size_t>(bytes));
    const uint8_t* scale = has_blocks(F) ? scales + i / (F == Format::nvfp4 ? 16 : 32) : nullptr;
    store_expanded(out + i, expand<F>(copy, scale, 0));
    for (int64_t j = count; j < i + kLanes; ++j) out[j] = Element{};
    i += kLanes;
  }
  for (; i < padded; ++i) out[i] = Element{};
}

template <class Element>
using ExpandRow = void (*)(const uint8_t* row, const uint8_t* scales, int64_t count, int64_t padded,
                           Element* out);

template <class Element>
ExpandRow<Element> expand_row_of(Format format) {
  switch (format) {
    case Format::f32:
      return expand_row<Format::f32, Element>;
    case Format::f16:
      return expand_row<Format::f16, Element>;
    case Format::bf16:
      return expand_row<Format::bf16, Element>;
    case Format::int8:
      return expand_row<Format::int8, Element>;
    case Format::mxfp8:
      return expand_row<Format::mxfp8, Element>;
    case Format::mxfp4:
      return expand_row<Format::mxfp4, Element>;
    case Format::nvfp4:
      return expand_row<Format::nvfp4, Element>;
    default:
      return expand_row<Format::fp8_e4m3, Element>;
  }
}

}  // namespace halftone::HALFTONE_LEVEL

// K and V of a BF16 or FP16 cache as mma.sync operands of decode attention, and the interface of
// the cache formats (the quantised ones are in dequantise.cuh).
//
// K is the B operand of S = Q K^T: a lane has a piece of one key, whose elements it may take in any
// order that Q follows. V is the A operand of O^T = V^T P^T: a lane has the same columns of two
// keys, and their elements become pairs.
#pragma once
#include "halftone/dtype.h"
#include "hw/bits.h"
#include "hw/types.h"

namespace halftone::attention_decode {

// A cache format gives: kBits of an element; kType of the MMAs; kKeys of a tile, so that 2 to 4 KB
// of K and as many of V are in flight a warp; kSplitQ, whether Q takes two terms in kType; kGroup,
// the elements that share a scale (0: none); kFactor, which undoes the scaling of its dequantised
// values;
//   key_pairs(word, scale, pairs) and key_element(pair, half), the element of the word,
//   value_pairs(a, b, scale, pairs): pair i is element i of both keys.
template <Format>
struct CacheFormat;

template <hw::Type kMma>
struct Float16Cache {
  static constexpr uint32_t kBits = 16, kKeys = 16, kGroup = 0;
  static constexpr hw::Type kType = kMma;
  static constexpr bool kSplitQ = false;
  static constexpr float kFactor = 1;
  HT_DEVICE static void key_pairs(uint32_t word, uint32_t, uint32_t (&pairs)[1]) {
    pairs[0] = word;
  }
  HT_HOST_DEVICE static uint32_t key_element(uint32_t, uint32_t half) { return half; }
  HT_DEVICE static void value_pairs(uint32_t a, uint32_t b, uint32_t, uint32_t (&pairs)[2]) {
    pairs[0] = hw::prmt(a, b, 0x5410), pairs[1] = hw::prmt(a, b, 0x7632);
  }
};
template <>
struct CacheFormat<Format::bf16> : Float16Cache<hw::Type::bf16> {};
template <>
struct CacheFormat<Format::f16> : Float16Cache<hw::Type::f16> {};

}  // namespace halftone::attention_decode

// A number and its index as one integer, so that the largest of many is one maximum of integers:
// the larger number, then the lower index, is the larger key. A NaN is above every number; zeros of
// both signs are equal.
#pragma once
#include <bit>
#include <cstdint>

#include "hw/target.h"

namespace halftone::pipe {

// The number alone; 0 is below that of every number.
HT_HOST_DEVICE uint32_t order_of(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x == 0 ? 0.0f : x);
  const uint32_t order = bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
  return x != x ? 0xffffffffu : order;
}
HT_HOST_DEVICE float number_of_order(uint32_t order) {
  return std::bit_cast<float>(order ^ (order >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

HT_HOST_DEVICE uint64_t order_key(float x, int64_t index) {
  return uint64_t{order_of(x)} << 32 | (0xffffffffu - static_cast<uint32_t>(index));
}
HT_HOST_DEVICE int64_t index_of_key(uint64_t key) {
  return 0xffffffffu - static_cast<uint32_t>(key & 0xffffffff);
}
HT_HOST_DEVICE float number_of_key(uint64_t key) {
  return number_of_order(static_cast<uint32_t>(key >> 32));
}

}  // namespace halftone::pipe

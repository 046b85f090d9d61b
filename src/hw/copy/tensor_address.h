// Addresses of tensor memory, and how many blocks an instruction of it works for.
#pragma once
#include <cstdint>

#include "hw/target.h"

namespace halftone::hw {

// A cell of tensor memory: 128 lanes of 512 columns of 32 bits.
struct TensorAddress {
  uint32_t value = 0;  // lane << 16 | column

  HT_HOST_DEVICE uint32_t lane() const { return value >> 16; }
  HT_HOST_DEVICE uint32_t column() const { return value & 0xFFFF; }
  HT_HOST_DEVICE TensorAddress plus(uint32_t lanes, uint32_t columns) const {
    return {value + (lanes << 16) + columns};
  }
  constexpr bool operator==(const TensorAddress&) const = default;
};

// One block, or the pair of blocks whose ranks in the cluster differ in the last bit only.
enum class CtaGroup : uint8_t { one = 1, two = 2 };

template <CtaGroup>
struct CtaGroupName;
template <>
struct CtaGroupName<CtaGroup::one> {
  static constexpr char text[] = "cta_group::1";
};
template <>
struct CtaGroupName<CtaGroup::two> {
  static constexpr char text[] = "cta_group::2";
};

}  // namespace halftone::hw

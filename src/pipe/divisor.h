// Division by a number that the host knows: a product and a shift instead of some 20 instructions.
#pragma once
#include <bit>
#include <cstdint>

#include "hw/target.h"

namespace halftone::pipe {

// n / d for n < 2^31: with 2^l the least power of two not below d, ceil(2^(31 + l) / d) is less
// than 2^32, and exceeds the quotient by less than 1, which n / 2^(31 + l) shrinks to less than 1 /
// d.
class Divisor {
 public:
  Divisor() = default;
  explicit constexpr Divisor(uint32_t d)  // 1 .. 2^31
      : shift_(31 + static_cast<uint32_t>(std::bit_width(d - 1))),
        factor_(static_cast<uint32_t>(((uint64_t{1} << shift_) + d - 1) / d)) {}
  HT_HOST_DEVICE uint32_t divide(uint32_t n) const {
    return static_cast<uint32_t>(uint64_t{n} * factor_ >> shift_);
  }

 private:
  uint32_t shift_ = 31, factor_ = uint32_t{1} << 31;
};

}  // namespace halftone::pipe

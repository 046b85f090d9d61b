// Division by a product: every quotient that a kernel may ask for.
#include "pipe/divisor.h"

#include <gtest/gtest.h>

namespace halftone {
namespace {

TEST(Divisor, DividesAsTheProcessorDoes) {
  constexpr uint32_t kEnd = uint32_t{1} << 31;
  for (uint32_t i = 0; i < 100'000; ++i) {
    // Small divisors, then ones next to powers of two, then any.
    const uint32_t scattered = i * 2654435761u >> 1;
    const uint32_t d = i < 1000 ? i + 1 : i < 1093 ? (1u << (i - 1000) / 3) + (i % 3) : scattered;
    if (d == 0 || d > kEnd) continue;
    const pipe::Divisor divisor(d);
    const uint32_t last = (kEnd - 1) / d * d;  // where a factor too small or too large shows first
    for (const uint32_t n : {0u, 1u, d - 1, d, d + 1, last - 1, last, kEnd - 1, scattered}) {
      if (n >= kEnd) continue;
      ASSERT_EQ(divisor.divide(n), n / d) << n << " / " << d;
    }
  }
}

}  // namespace
}  // namespace halftone

// exp and ln from additions and multiplications alone: the same bits on every machine and on GPUs.
#pragma once
#include <cstdint>

namespace halftone {

// exp(x) for x <= 0 from additions and multiplications alone: unlike the C library's, the result
// has the same bits on every machine, and so has the choice of a token. Error below 2 ulp. A number
// is a double or a vector of them, Words integers of that shape.
template <class Number, class Words>
constexpr void portable_exp(const Number& x, Number* result) {
  const Number least = Number{} - 700;
  const auto positive = x > least;
  const Number inside = positive ? x : least;
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const Number shifted = inside * 1.4426950408889634 + kShift, n = shifted - kShift;
  const Number r = (inside - n * 0x1.62e42fefa3800p-1) - n * 0x1.ef35793c76730p-45;
  // Taylor in Horner form; |r| <= 0.35 makes 14 terms enough.
  constexpr double kInverse[] = {1,       1.0 / 2, 1.0 / 3, 1.0 / 4,  1.0 / 5,  1.0 / 6,  1.0 / 7,
                                 1.0 / 8, 1.0 / 9, 0.1,     1.0 / 11, 1.0 / 12, 1.0 / 13, 1.0 / 14};
  Number p = Number{} + 1;
  for (int k = 14; k > 0; --k) p = 1 + p * r * kInverse[k - 1];
  // n is in the lowest bits of `shifted`: moved to the exponent they are 2^n.
  const Words exponent = (__builtin_bit_cast(Words, shifted) + 1023) << 52;
  *result = positive ? Number(p * __builtin_bit_cast(Number, exponent)) : Number{};
}
constexpr double portable_exp(double x) {
  double result = 0;
  portable_exp<double, uint64_t>(x, &result);
  return result;
}

// ln(x) of a positive normal number, likewise; error below 1e-15 of max(1, |ln x|).
constexpr double portable_log(double x) {
  const auto bits = __builtin_bit_cast(uint64_t, x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.4142135623730951) m *= 0.5, ++exponent;
  // ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172: 11 odd powers.
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double sum = 0;
  for (int k = 21; k > 0; k -= 2) sum = sum * s2 + 1.0 / k;
  return 2 * s * sum + exponent * 0.69314718055994531;
}

}  // namespace halftone

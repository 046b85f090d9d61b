// The number formats from their definitions, in double and by search: a model that shares nothing
// with the codecs it checks.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace halftone::test {

// A sign-magnitude format: value[i] is the magnitude of code i, ascending. Numbers above the last
// saturate to it.
struct CodeTable {
  std::vector<double> value;
  uint32_t nan;           // what NaN becomes
  int sign_bit;           // its position
  bool infinity = false;  // code value.size() is infinity: half a step above the last rounds to it
};

// Exponent and mantissa fields with a bias; `codes` magnitudes are numbers.
inline std::vector<double> magnitudes(int codes, int mantissa_bits, int bias) {
  std::vector<double> value;
  for (int code = 0; code < codes; ++code) {
    const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    const double fraction = std::ldexp(mantissa, -mantissa_bits);
    value.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                  : std::ldexp(1 + fraction, exponent - bias));
  }
  return value;
}
inline CodeTable e4m3_table() { return {magnitudes(0x7f, 3, 7), 0x7f, 7}; }
inline CodeTable e5m2_table() { return {magnitudes(0x7c, 2, 15), 0x7f, 7}; }
inline CodeTable e2m3_table() { return {magnitudes(0x20, 3, 1), 0x1f, 5}; }
inline CodeTable e3m2_table() { return {magnitudes(0x20, 2, 3), 0x1f, 5}; }
inline CodeTable e2m1_table() { return {{0, 0.5, 1, 1.5, 2, 3, 4, 6}, 0x7, 3}; }
inline CodeTable f16_table() { return {magnitudes(0x7c00, 10, 15), 0x7e00, 15, true}; }
inline CodeTable bf16_table() { return {magnitudes(0x7f80, 7, 127), 0x7fc0, 15, true}; }

// Walks through magnitudes in ascending order, the nearest code (ties: the even one) at hand.
class NearestCode {
 public:
  explicit NearestCode(const CodeTable& table) : value_(table.value) {
    if (table.infinity) {  // as if the next power of two were a number
      value_.push_back(2 * value_.back() - value_[value_.size() - 2]);
    }
  }
  uint32_t operator()(double x) {
    while (code_ + 1 < value_.size() && above(x)) ++code_;
    return static_cast<uint32_t>(code_);
  }
  // For a magnitude anywhere.
  uint32_t search(double x) {
    size_t low = 0, high = value_.size() - 1;
    while (low < high) {
      code_ = (low + high) / 2;
      if (above(x)) {
        low = code_ + 1;
      } else {
        high = code_;
      }
    }
    code_ = low;
    return static_cast<uint32_t>(low);
  }

 private:
  bool above(double x) const {
    const double middle = (value_[code_] + value_[code_ + 1]) / 2;
    return x > middle || (x == middle && (code_ + 1) % 2 == 0);
  }
  std::vector<double> value_;
  size_t code_ = 0;
};

inline uint32_t model_encode(const CodeTable& table, NearestCode& nearest, float x) {
  if (std::isnan(x)) return table.nan;
  const uint32_t sign = std::signbit(x) ? 1u << table.sign_bit : 0;
  return sign | nearest.search(std::abs(static_cast<double>(x)));
}

// The power of two at or above (below) |x|, as an exponent code.
inline uint32_t model_ue8m0(float x, bool down) {
  if (std::isnan(x)) return 255;
  if (std::isinf(x)) return 254;
  const double magnitude = std::abs(static_cast<double>(x));
  if (magnitude == 0) return 0;
  int exponent;
  const double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  const int power = fraction == 0.5 || down ? exponent - 1 : exponent;
  return static_cast<uint32_t>(std::fmin(std::fmax(power + 127, 0), 254));
}

}  // namespace halftone::test

// Operands that tensor-core arithmetic is tested with, on the simulator and on silicon.
#pragma once
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "sim/numerics/mma.h"
#include "sim/numerics/mma_decode.h"

namespace halftone::sim {

// What a batch of operands is there to provoke.
enum class MmaData : uint8_t {
  ordinary,      // a few octaves: every alignment within the sum
  any_bits,      // all codes, NaN and infinities as often as they come
  rare_special,  // ordinary with NaN and infinities here and there
  subnormal,     // operands and C at the bottom of their ranges
  zeros,         // two of three operands zero, of either sign, exponents far apart
  cancelling,    // products in pairs of opposite sign
  extreme,       // exponents at both ends
  small_c,       // C far below the products, and the products far below each other
  tiny,          // products at and below the smallest results, C often zero of either sign
  border,        // sums at the largest results, cancelling or overflowing
};
inline constexpr MmaData kMmaData[] = {MmaData::ordinary,  MmaData::any_bits, MmaData::rare_special,
                                       MmaData::subnormal, MmaData::zeros,    MmaData::cancelling,
                                       MmaData::extreme,   MmaData::small_c,  MmaData::tiny,
                                       MmaData::border};
inline const char* name(MmaData data) {
  static constexpr const char* kNames[] = {"ordinary", "any bits",   "rare special", "subnormal",
                                           "zeros",    "cancelling", "extreme",      "small C",
                                           "tiny",     "border"};
  return kNames[static_cast<int>(data)];
}

struct MmaCase {
  int m, n, k;
  MmaElement a_type, b_type;
  MmaAccumulator accumulator;
  std::vector<uint8_t> a, b;                // codes of [m, k] and [n, k]
  std::vector<uint8_t> c;                   // [m, n]
  std::vector<uint8_t> a_scales, b_scales;  // [m, k / 16] and [n, k / 16]: room for any block
  MmaTile tile(void* d) const {
    return {m,
            n,
            k,
            {a_type, a.data(), k, false, a_scales.data(), k / 16},
            {b_type, b.data(), k, false, b_scales.data(), k / 16},
            c.data(),
            d,
            n,
            1};
  }
  size_t output_bytes() const { return c.size(); }
};

class MmaCases {
 public:
  explicit MmaCases(uint64_t seed) : random_(seed) {}

  MmaCase make(MmaElement a, MmaElement b, MmaAccumulator accumulator, int m, int n, int k,
               MmaData data) {
    MmaCase x{m, n, k, a, b, accumulator, {}, {}, {}, {}, {}};
    fill(x.a, a, m, k, data, false);
    fill(x.b, b, n, k, data, true);
    const bool f16 = accumulator == MmaAccumulator::f16;
    x.c.resize(static_cast<size_t>(m) * n * (f16 ? 2 : 4));
    for (int i = 0; i < m * n; ++i) {
      const uint32_t c = accumulator_code(accumulator, data);
      std::memcpy(&x.c[static_cast<size_t>(i) * (f16 ? 2 : 4)], &c, f16 ? 2 : 4);
    }
    for (auto* scales : {&x.a_scales, &x.b_scales}) {
      scales->resize(static_cast<size_t>(scales == &x.a_scales ? m : n) * (k / 16 + 1));
      for (uint8_t& code : *scales) {
        const bool narrow = data == MmaData::ordinary || data == MmaData::cancelling;
        code = static_cast<uint8_t>(narrow ? 120 + below(16) : below(256));
      }
    }
    return x;
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  // A code of `format` with a biased exponent within the limits.
  uint32_t code_between(const MmaFormat& format, uint32_t low, uint32_t high) {
    const auto r = static_cast<uint32_t>(random_());
    const uint32_t exponent = low + below(high - low + 1);
    const uint32_t fraction = r & ((1u << format.fraction_bits) - 1);
    const uint32_t sign = r >> 31;
    return (sign << sign_of(format)) | (exponent << format.fraction_bits) | fraction;
  }

  static int sign_of(const MmaFormat& format) {
    return format.exponent_bits + format.fraction_bits;
  }

  uint32_t code_of(const MmaFormat& format, MmaData data) {
    const uint32_t top = (1u << format.exponent_bits) - 1;
    const auto bias = static_cast<uint32_t>(format.bias);
    const uint32_t low = bias > 9 ? bias - 9 : 0;
    const uint32_t high = bias + 7 < top ? bias + 7 : top > 3 ? top - 1 : top;
    switch (data) {
      case MmaData::any_bits:
        return code_between(format, 0, top);
      case MmaData::rare_special:
        return below(48) == 0 ? code_between(format, top, top) : code_between(format, low, high);
      case MmaData::subnormal:
        return code_between(format, 0, top > 7 && below(2) == 0 ? 2 : 0);
      case MmaData::zeros:
        if (below(3) != 0) return below(2) << sign_of(format);
        return code_between(format, low, high);
      case MmaData::extreme:
        if (below(2) == 0) return code_between(format, 0, top > 15 ? top / 8 : 0);
        return code_between(format, top > 15 ? top - top / 8 : top - 1, top - 1);
      case MmaData::small_c:
        return code_between(format, bias > 30 ? bias - 30 : 0, high);
      case MmaData::tiny:  // products of wide formats between 2^-146 and 2^-120
        if (bias > 100) return code_between(format, bias - 73, bias - 60);
        return below(3) == 0 ? code_between(format, 0, 1) : below(2) << sign_of(format);
      case MmaData::border:  // products of wide formats between 2^122 and 2^128
        if (bias > 100) return code_between(format, bias + 61, bias + 63);
        return code_between(format, top - 2, top - 1);
      default:
        return code_between(format, low, high);
    }
  }

  uint32_t accumulator_code(MmaAccumulator type, MmaData data) {
    if (type == MmaAccumulator::s32) {
      const auto r = static_cast<uint32_t>(random_());
      return data == MmaData::extreme ? r | 0x7fff0000u : r;
    }
    const MmaFormat format =
        type == MmaAccumulator::f16 ? mma_format(MmaElement::f16) : kMmaFloat32;
    const auto bias = static_cast<uint32_t>(format.bias);
    if (data == MmaData::cancelling && below(2) == 0) return 0;
    if (data == MmaData::small_c) return code_between(format, bias > 40 ? bias - 40 : 0, bias - 10);
    if (data == MmaData::tiny)
      return below(2) == 0 ? below(2) << sign_of(format) : code_between(format, 0, 3);
    if (data == MmaData::border)
      return below(2) == 0 ? below(2) << sign_of(format)
                           : code_between(format, 2 * bias - 4, 2 * bias);
    return code_of(format, data);
  }

  void fill(std::vector<uint8_t>& codes, MmaElement type, int rows, int k, MmaData data,
            bool pairs) {
    const size_t bytes = static_cast<size_t>(code_bytes(type));
    codes.resize(static_cast<size_t>(rows) * k * bytes);
    const bool integer = type == MmaElement::s8 || type == MmaElement::u8;
    for (int row = 0; row < rows; ++row) {
      const bool cancels = data == MmaData::cancelling || (data == MmaData::border && row % 2 == 0);
      for (int i = 0; i < k; ++i) {
        uint32_t code = integer ? below(256) : code_of(mma_format(type), data);
        if (type == MmaElement::tf32) code = (code << 13) | below(1 << 13);
        if (type == MmaElement::e2m1_container) code <<= 2;
        uint8_t* at = &codes[(static_cast<size_t>(row) * k + i) * bytes];
        // A's elements come in equal pairs, B's in pairs of opposite sign and nearly equal size.
        if (cancels && !integer && i % 2 == 1) {
          std::memcpy(&code, at - bytes, bytes);
          const uint32_t low = type == MmaElement::tf32 ? 1u << 13 : 1u;
          const MmaFormat format = mma_format(type);
          const int sign = sign_of(format) + (type == MmaElement::tf32             ? 13
                                              : type == MmaElement::e2m1_container ? 2
                                                                                   : 0);
          if (pairs) code ^= (1u << sign) | (below(3) == 0 ? low : 0);
        }
        std::memcpy(at, &code, bytes);
      }
    }
  }

  std::mt19937_64 random_;
};

}  // namespace halftone::sim

// The definition of mma_exact: one output at a time, in integers wide enough for everything.
#include <bit>
#include <cstddef>
#include <vector>

#include "formats/codec.h"
#include "sim/numerics/mma.h"
#include "sim/numerics/mma_decode.h"

namespace halftone::sim {
namespace {

__extension__ typedef __int128 Wide;

constexpr uint32_t kNan32 = 0x7fffffff;
constexpr uint16_t kNan16 = 0x7fff;

// significand * 2^(exponent - fraction), the terms of a fused sum.
struct Term {
  Wide significand;
  int fraction, exponent;
};

// Towards zero after moving the point; far shifts leave nothing.
Wide aligned(const Term& term, int fraction_bits, int largest) {
  const int shift = fraction_bits - term.fraction - (largest - term.exponent);
  const Wide magnitude = term.significand < 0 ? -term.significand : term.significand;
  const Wide moved = shift >= 0 ? magnitude << shift : shift <= -127 ? 0 : magnitude >> -shift;
  return term.significand < 0 ? -moved : moved;
}

// magnitude * 2^exponent to a format with `fraction` bits and smallest exponent `min_exponent`,
// as an integer times 2^(returned exponent).
struct Rounded {
  Wide magnitude;
  int exponent;
};
Rounded round_sum(Wide magnitude, int exponent, int fraction, int min_exponent, bool nearest) {
  int top = -1;
  for (Wide rest = magnitude; rest != 0; rest >>= 1) ++top;
  const int leading = top + exponent;  // floor(log2(value))
  const int last = (leading > min_exponent ? leading : min_exponent) - fraction;
  const int drop = last - exponent;
  if (drop <= 0) return {magnitude, exponent};
  if (drop > 120) return {0, last};
  Wide kept = magnitude >> drop;
  if (nearest) {
    const Wide rest = magnitude - (kept << drop), half = static_cast<Wide>(1) << (drop - 1);
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  }
  return {kept, last};
}

// A value that the format holds exactly, or that lies above its range.
double to_double(const Rounded& x) {
  double value = static_cast<double>(x.magnitude);
  int exponent = x.exponent;
  for (; exponent > 0; --exponent) value *= 2;
  for (; exponent < 0; ++exponent) value /= 2;
  return value;
}

// The accumulator as a number, and back from a sum.
MmaNumber accumulator_number(MmaRule::Output output, uint32_t bits) {
  if (output == MmaRule::Output::f16) return mma_number(mma_format(MmaElement::f16), bits);
  return mma_number(kMmaFloat32, bits);
}
uint32_t nan_bits(MmaRule::Output output) {
  return output == MmaRule::Output::f16 ? kNan16 : kNan32;
}
uint32_t infinity_bits(MmaRule::Output output, bool negative) {
  if (output == MmaRule::Output::f16) return negative ? 0xfc00 : 0x7c00;
  return negative ? 0xff800000u : 0x7f800000u;
}
uint32_t output_bits(MmaRule::Output output, Wide sum, int exponent) {
  const bool negative = sum < 0;
  const Wide magnitude = negative ? -sum : sum;
  if (output == MmaRule::Output::f16) {
    const double value = to_double(round_sum(magnitude, exponent, 10, -14, true));
    const uint32_t code = value >= 65536 ? 0x7c00u : encode_f16(static_cast<float>(value));
    return code | (negative && code != 0 ? 0x8000u : 0);
  }
  const int fraction = output == MmaRule::Output::f32_e8m13 ? 13 : 23;
  const double value = to_double(round_sum(magnitude, exponent, fraction, -126, false));
  if (value >= 0x1p128) return infinity_bits(output, negative);
  const uint32_t code = std::bit_cast<uint32_t>(static_cast<float>(value));
  return code | (negative && code != 0 ? 0x80000000u : 0);
}

// One fused sum: `terms` with C, all finite.
uint32_t fused_sum(std::vector<Term> terms, const MmaNumber& c, const MmaRule& rule) {
  if (!c.zero()) {
    const Wide s = c.significand;
    terms.push_back({c.negative ? -s : s, c.fraction, c.exponent});
  }
  bool any = false;
  int largest = 0;
  for (const Term& term : terms) {
    largest = !any || term.exponent > largest ? term.exponent : largest;
    any = true;
  }
  Wide sum = 0;
  for (const Term& term : terms) sum += aligned(term, rule.fraction_bits, largest);
  return output_bits(rule.output, sum, largest - rule.fraction_bits);
}

// NaN and infinities decide alone, by the rules of an IEEE sum.
struct Specials {
  bool nan = false, plus = false, minus = false;
  void add(const MmaNumber& x) {
    nan |= x.kind == MmaNumber::Kind::nan;
    if (x.kind == MmaNumber::Kind::infinite) (x.negative ? minus : plus) = true;
  }
  void add_product(const MmaNumber& a, const MmaNumber& b) {
    using Kind = MmaNumber::Kind;
    if (a.kind == Kind::finite && b.kind == Kind::finite) return;
    nan |= a.kind == Kind::nan || b.kind == Kind::nan || a.zero() || b.zero();
    if (!nan) (a.negative != b.negative ? minus : plus) = true;
  }
  bool any() const { return nan || plus || minus; }
  uint32_t bits(MmaRule::Output output) const {
    return nan || (plus && minus) ? nan_bits(output) : infinity_bits(output, minus);
  }
};

uint32_t fused_dot(const MmaRule& rule, const std::vector<MmaNumber>& a,
                   const std::vector<MmaNumber>& b, int scale_exponent, uint32_t c_bits) {
  const MmaNumber c = accumulator_number(rule.output, c_bits);
  Specials specials;
  specials.add(c);
  std::vector<Term> terms;
  for (size_t i = 0; i < a.size(); ++i) {
    specials.add_product(a[i], b[i]);
    if (a[i].zero() || b[i].zero()) continue;  // zeros have no say in the largest exponent
    const Wide s = static_cast<Wide>(a[i].significand) * b[i].significand;
    terms.push_back({a[i].negative != b[i].negative ? -s : s, a[i].fraction + b[i].fraction,
                     a[i].exponent + b[i].exponent + scale_exponent});
  }
  return specials.any() ? specials.bits(rule.output) : fused_sum(terms, c, rule);
}

// FP8 through f16, whose exponents differ from those of FP8 subnormals.
MmaNumber as_f16(const MmaNumber& x) {
  MmaNumber y = x;
  while (!y.zero() && y.kind == MmaNumber::Kind::finite && y.exponent > -14 &&
         (y.significand >> y.fraction) == 0) {
    y.significand <<= 1;
    --y.exponent;
  }
  return y;
}

uint32_t f16_expansion(const MmaRule& rule, const std::vector<MmaNumber>& a,
                       const std::vector<MmaNumber>& b, uint32_t c_bits) {
  uint32_t sum = 0;
  for (const bool high : {false, true}) {
    std::vector<MmaNumber> x, y;
    for (size_t i = 0; i < a.size(); ++i) {
      if ((i % 4 >= 2) != high) continue;
      x.push_back(as_f16(a[i]));
      y.push_back(as_f16(b[i]));
    }
    sum = fused_dot(rule, x, y, 0, sum);
  }
  const float d = std::bit_cast<float>(c_bits) + std::bit_cast<float>(sum);
  return d != d ? kNan32 : std::bit_cast<uint32_t>(d);
}

uint32_t grouped(const MmaRule& rule, const std::vector<MmaNumber>& a,
                 const std::vector<MmaNumber>& b, const std::vector<MmaNumber>& scale_a,
                 const std::vector<MmaNumber>& scale_b, uint32_t c_bits) {
  const MmaNumber c = accumulator_number(rule.output, c_bits);
  Specials specials;
  specials.add(c);
  const size_t block = scale_block(rule.scales);
  std::vector<Term> terms;
  for (size_t group = 0; group < a.size(); group += 16) {
    const MmaNumber &sa = scale_a[group / block], &sb = scale_b[group / block];
    specials.nan |= sa.kind == MmaNumber::Kind::nan || sb.kind == MmaNumber::Kind::nan;
    if (sa.zero() || sb.zero()) continue;
    Wide sum = 0;  // in units of 2^-2: e2m1 are halves
    for (size_t i = group; i < group + 16; ++i) {
      const Wide p = static_cast<Wide>(a[i].significand << a[i].exponent) *
                     (b[i].significand << b[i].exponent);
      sum += a[i].negative != b[i].negative ? -p : p;
    }
    terms.push_back({sum * sa.significand * sb.significand, 2 + sa.fraction + sb.fraction,
                     sa.exponent + sb.exponent});
  }
  return specials.any() ? specials.bits(rule.output) : fused_sum(terms, c, rule);
}

uint32_t integer(const MmaTile& tile, int row, int column, uint32_t c_bits) {
  Wide sum = static_cast<int32_t>(c_bits);
  const auto load = [](const MmaOperand& x, int64_t i) {
    const uint8_t code = static_cast<const uint8_t*>(x.codes)[i];
    const int value = x.type == MmaElement::s8 ? static_cast<int8_t>(code) : code;
    return x.negate ? -value : value;
  };
  for (int k = 0; k < tile.k; ++k)
    sum += load(tile.a, row * tile.a.row_stride + k) * load(tile.b, column * tile.b.row_stride + k);
  if (tile.saturate) {
    if (sum > INT32_MAX) sum = INT32_MAX;
    if (sum < INT32_MIN) sum = INT32_MIN;
  }
  return static_cast<uint32_t>(static_cast<uint64_t>(sum));
}

}  // namespace

uint32_t mma_reference_output(const MmaRule& rule, const MmaTile& tile, int row, int column,
                              uint32_t c) {
  if (rule.sum == MmaRule::Sum::integer) return integer(tile, row, column, c);
  std::vector<MmaNumber> a, b, scale_a, scale_b;
  const int block = scale_block(rule.scales);
  const int step = rule.sum == MmaRule::Sum::f16_expansion ? 2 * rule.k : rule.k;
  for (int begin = 0; begin < tile.k; begin += step) {
    a.clear(), b.clear(), scale_a.clear(), scale_b.clear();
    for (int k = begin; k < tile.k && k < begin + step; ++k) {
      a.push_back(load_number(tile.a, row, k));
      b.push_back(load_number(tile.b, column, k));
      if (block != 0 && k % block == 0) {
        scale_a.push_back(
            load_scale(rule.scales, tile.a.scales[row * tile.a.scale_stride + k / block]));
        scale_b.push_back(
            load_scale(rule.scales, tile.b.scales[column * tile.b.scale_stride + k / block]));
      }
    }
    switch (rule.sum) {
      case MmaRule::Sum::grouped:
        c = grouped(rule, a, b, scale_a, scale_b, c);
        break;
      case MmaRule::Sum::f16_expansion:
        c = f16_expansion(rule, a, b, c);
        break;
      default: {
        if (block == 0) {
          c = fused_dot(rule, a, b, 0, c);
        } else if (scale_a[0].kind == MmaNumber::Kind::nan ||
                   scale_b[0].kind == MmaNumber::Kind::nan) {
          c = kNan32;
        } else {
          c = fused_dot(rule, a, b, scale_a[0].exponent + scale_b[0].exponent, c);
        }
      }
    }
  }
  return c;
}

void mma_reference(const MmaRule& rule, const MmaTile& tile) {
  for (int row = 0; row < tile.m; ++row) {
    for (int column = 0; column < tile.n; ++column) {
      const int64_t at = row * tile.row_stride + column * tile.column_stride;
      uint32_t c = 0;
      if (tile.c != nullptr) {
        c = rule.output == MmaRule::Output::f16 ? static_cast<const uint16_t*>(tile.c)[at]
                                                : static_cast<const uint32_t*>(tile.c)[at];
      }
      const uint32_t d = mma_reference_output(rule, tile, row, column, c);
      if (rule.output == MmaRule::Output::f16) {
        static_cast<uint16_t*>(tile.d)[at] = static_cast<uint16_t>(d);
      } else {
        static_cast<uint32_t*>(tile.d)[at] = d;
      }
    }
  }
}

}  // namespace halftone::sim

// Elements to codes and scales to memory, as the quantising kernels share them. The bits are those
// of the codecs.
#pragma once
#include <cmath>
#include <type_traits>

#include "formats/gpu/kernels.h"
#include "formats/quantize_rows.h"
#include "formats/scale_layout.h"
#include "hw/bits.h"
#include "hw/pair.h"
#include "pipe/access.h"
#include "pipe/codes.h"
#include "pipe/divisor.h"
#include "pipe/fault.h"

namespace halftone {

HT_DEVICE uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffff; }

template <Format kFormat>
using FormatConstant = std::integral_constant<Format, kFormat>;
// Calls body with a format of the elements of f, as a constant: the choice stands outside of the
// loops over elements.
template <class Body>
HT_DEVICE void for_elements_of(Format f, const Body& body) {
  switch (element_of(f)) {
#define HALFTONE_X(name, ...) \
  case Element::name:         \
    return body(FormatConstant<format_with(Element::name)>{});
    HALFTONE_SMALL_ELEMENTS(HALFTONE_X)
#undef HALFTONE_X
    default:
      __builtin_unreachable();  // f is what quantize makes
  }
}

// 1.5 * 2^23: a sum with it rounds to an integer, to even, and ends in that integer's bits.
inline constexpr float kRoundingShift = 12582912.0f;
inline constexpr uint32_t kRoundingBits = 0x4b400000, kEveryNibble = 0x11111111;

// Eight integers above kRoundingBits as nibbles, modulo 16 with what they borrow.
HT_DEVICE uint32_t pack_nibbles(const uint32_t (&bits)[8]) {
  uint32_t packed = 0;
  HT_UNROLL
  for (int i = 7; i >= 0; --i) packed = packed * 16 + bits[i];
  return packed - kRoundingBits * kEveryNibble;
}

// The signs of eight numbers, each in the upper bit of its nibble: a byte permutation spreads the
// sign of a byte over it.
HT_DEVICE uint32_t nibble_signs(const float (&x)[8]) {
  uint32_t signs[2];  // of the even and of the odd ones, a byte each
  HT_UNROLL
  for (uint32_t odd = 0; odd < 2; ++odd) {
    const auto two = [&](uint32_t i) {
      return hw::prmt(std::bit_cast<uint32_t>(x[i + odd]), std::bit_cast<uint32_t>(x[i + 2 + odd]),
                      0xfb);
    };
    signs[odd] = hw::prmt(two(0), two(4), 0x5410);
  }
  return (signs[0] & 0x08080808u) | (signs[1] & 0x80808080u);
}

HT_DEVICE uint32_t least_of(uint32_t a, uint32_t b) { return a < b ? a : b; }

// Eight codes of encode_e2m1, without branches: the code of a >= 0 is the least of 2 a, a + 2,
// a / 2 + 4 and 7, rounded, as it is one of these lines between each two powers of two and lies
// below the others. x is a number, multiplier not negative. Positive numbers are in the order of
// their bits, of which sm_90 takes the least of three by one instruction. kBounded: no a is 7 or
// more.
template <bool kBounded = false>
HT_DEVICE uint32_t encode_e2m1_eight(const float (&x)[8], float multiplier) {
  uint32_t bits[8];
  HT_UNROLL
  for (uint32_t i = 0; i < 8; ++i) {
    const float a = fabsf(x[i] * multiplier);
    const float lines[3] = {hw::fma(a, 2.0f, kRoundingShift), a + (kRoundingShift + 2),
                            hw::fma(a, 0.5f, kRoundingShift + 4)};
    const uint32_t least =
        least_of(least_of(std::bit_cast<uint32_t>(lines[0]), std::bit_cast<uint32_t>(lines[1])),
                 std::bit_cast<uint32_t>(lines[2]));
    bits[i] = kBounded ? least : least_of(least, kRoundingBits + 7);
  }
  return pack_nibbles(bits) | nibble_signs(x);
}

// The same of eight bf16 and a multiplier that is a power of two: bf16 holds the products and the
// sums above 128, whose last bit is 1, exactly, so that two elements share an instruction.
HT_DEVICE uint32_t encode_e2m1_pairs(const hw::Words4& x, float multiplier) {
  constexpr hw::Type kType = hw::Type::bf16x2;
  constexpr uint32_t kBoth = 0x10001, kZero = 0x8000 * kBoth;  // -0 adds nothing
  constexpr uint32_t kShift = 0x4340 * kBoth;  // 1.5 * 2^7, and `n` more in its lowest bits
  const auto shift = [](uint32_t n) { return kShift + n * kBoth; };
  const uint32_t factor = (std::bit_cast<uint32_t>(multiplier) >> 16) * kBoth;
  uint32_t codes[4];  // with the signs above them, in each half
  HT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t a = hw::fma_pair<kType>(x[i] & 0x7fff7fff, factor, kZero);
    uint32_t code = hw::min_pair<kType>(hw::fma_pair<kType>(a, 0x4000 * kBoth, shift(0)),
                                        hw::fma_pair<kType>(a, 0x3f80 * kBoth, shift(2)));
    code = hw::min_pair<kType>(code, hw::fma_pair<kType>(a, 0x3f00 * kBoth, shift(4)));
    code = hw::min_pair<kType>(code, shift(7));
    codes[i] = code | (x[i] >> 12 & 0x00080008);
  }
  const uint32_t even =
      hw::prmt(hw::prmt(codes[0], codes[1], 0x40), hw::prmt(codes[2], codes[3], 0x40), 0x5410);
  const uint32_t odd =
      hw::prmt(hw::prmt(codes[0], codes[1], 0x62), hw::prmt(codes[2], codes[3], 0x62), 0x5410);
  return (even & 0x0f0f0f0f) | (odd << 4 & 0xf0f0f0f0);
}

// Eight codes of six bits, a byte each, without the gaps between them.
HT_DEVICE uint64_t pack_sixes(const uint32_t (&words)[2]) {
  const auto four = [](uint32_t w) -> uint64_t {
    w = (w & 0x3f003f) | (w >> 2 & 0x0fc00fc0);  // pairs of 12 bits
    return (w & 0xfff) | (w >> 4 & 0xfff000);
  };
  return four(words[1]) << 24 | four(words[0]);
}

// Eight codes, the first one lowest. kConvert: FP8 by the conversion instruction of sm_89 and
// later.
template <Format kFormat, bool kConvert, bool kBounded = false>
HT_DEVICE uint64_t encode_eight(const float (&x)[8], float multiplier, int zero) {
  constexpr Element kElement = element_of(kFormat);
  uint32_t words[2] = {};
  if constexpr (kElement == Element::e2m1) {
    words[0] = encode_e2m1_eight<kBounded>(x, multiplier);
  } else if constexpr (kElement == Element::int4) {
    const auto least = static_cast<float>(-zero), most = static_cast<float>(15 - zero);
    uint32_t bits[8];
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      const float v = hw::max(hw::min(x[i] * multiplier, most), least);
      bits[i] = std::bit_cast<uint32_t>(v + kRoundingShift);
    }
    words[0] = pack_nibbles(bits) + static_cast<uint32_t>(zero) * kEveryNibble;
  } else if constexpr (kElement == Element::int8) {
    uint32_t bits[8];
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      const float v = hw::max(hw::min(x[i] * multiplier, 127.0f), -127.0f);
      bits[i] = std::bit_cast<uint32_t>(v + kRoundingShift);
    }
    HT_UNROLL
    for (uint32_t i = 0; i < 8; i += 4) {  // the lowest bytes
      words[i / 4] = hw::prmt(hw::prmt(bits[i], bits[i + 1], 0x40),
                              hw::prmt(bits[i + 2], bits[i + 3], 0x40), 0x5410);
    }
  } else if constexpr (kConvert && is_fp8(kElement)) {
    constexpr hw::Type kType = kElement == Element::e5m2 ? hw::Type::e5m2 : hw::Type::e4m3;
    HT_UNROLL
    for (uint32_t i = 0; i < 8; i += 4) {
      const uint32_t low = hw::cvt_fp8x2<kType>(x[i] * multiplier, x[i + 1] * multiplier);
      const uint32_t high = hw::cvt_fp8x2<kType>(x[i + 2] * multiplier, x[i + 3] * multiplier);
      words[i / 4] = hw::prmt(low, high, 0x5410);
    }
  } else {
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      words[i / 4] |= uint32_t{encode_as<kElement>(x[i] * multiplier, zero)} << 8 * (i % 4);
    }
    if constexpr (bits_of(kFormat) == 6) return pack_sixes(words);
  }
  return uint64_t{words[1]} << 32 | words[0];
}
template <bool kConvert>
HT_DEVICE uint64_t encode_eight(const Recipe& r, const float (&x)[8], float multiplier, int zero) {
  uint64_t codes = 0;
  for_elements_of(r.format, [&](auto format) {
    codes = encode_eight<format.value, kConvert>(x, multiplier, zero);
  });
  return codes;
}
// Formats of elements and scales that a body is made for, so that nothing is left to choose inside
// of its loops.
template <Format kElements, Format kScaleFormat, bool kAsymmetric = false>
struct FixedKind {
  static constexpr bool kFixed = true;
  static constexpr Format kFormat = kElements, kScale = kScaleFormat;
  static constexpr Element kElement = element_of(kElements);
  HT_DEVICE static Recipe of(Recipe recipe) {
    recipe.format = kElements, recipe.scale_format = kScaleFormat, recipe.asymmetric = kAsymmetric;
    return recipe;
  }
};
struct AnyKind {
  static constexpr bool kFixed = false;
  static constexpr Format kScale = Format::f32;  // none that is fixed
  static constexpr Element kElement = Element::f32;
  HT_DEVICE static const Recipe& of(const Recipe& recipe) { return recipe; }
};
// kInt4: int4 is one of those that have a body of their own.
template <bool kInt4 = true, class Body>
HT_DEVICE void for_kind_of(Format f, Format scale, bool asymmetric, const Body& body) {
  const Element element = element_of(f);
  if (element == Element::e2m1) {
    if (scale == Format::fp8_e4m3) return body(FixedKind<Format::nvfp4, Format::fp8_e4m3>{});
    if (scale == Format::ue8m0) return body(FixedKind<Format::mxfp4, Format::ue8m0>{});
  }
  if (element == Element::e4m3) {
    if (scale == Format::f32) return body(FixedKind<Format::fp8_e4m3, Format::f32>{});
    if (scale == Format::ue8m0) return body(FixedKind<Format::fp8_e4m3, Format::ue8m0>{});
  }
  if (f == Format::int8 && scale == Format::f32) {
    return body(FixedKind<Format::int8, Format::f32>{});
  }
  if constexpr (kInt4) {
    if (f == Format::int4 && scale == Format::f16) {
      if (asymmetric) return body(FixedKind<Format::int4, Format::f16, true>{});
      return body(FixedKind<Format::int4, Format::f16>{});
    }
  }
  body(AnyKind{});
}
template <class Kind, bool kConvert, bool kBounded = false>
HT_DEVICE uint64_t encode_eight_of(const Recipe& r, const float (&x)[8], float multiplier,
                                   int zero) {
  if constexpr (Kind::kFixed) {
    return encode_eight<Kind::kFormat, kConvert, kBounded>(x, multiplier, zero);
  } else {
    return encode_eight<kConvert>(r, x, multiplier, zero);
  }
}

// Eight codes at `to`, a multiple of 4 or 8 bytes; of six bits, of 2.
template <Format kFormat>
HT_DEVICE void store_codes(uint8_t* to, uint64_t codes) {
  const auto low = static_cast<uint32_t>(codes);
  if constexpr (bits_of(kFormat) == 4) {
    hw::store_global(reinterpret_cast<uint32_t*>(to), low);
  } else if constexpr (bits_of(kFormat) == 6) {
    HT_UNROLL
    for (uint32_t i = 0; i < 3; ++i) {
      hw::store_global(reinterpret_cast<uint16_t*>(to) + i, static_cast<uint16_t>(codes >> 16 * i));
    }
  } else {
    using Pair = hw::Vector<uint32_t, 2>;
    hw::store_global(reinterpret_cast<Pair*>(to), Pair{{low, static_cast<uint32_t>(codes >> 32)}});
  }
}

// Of eight neighbours in format f, the first of which is number `first` of all, a multiple of 8.
HT_DEVICE void store_eight(Format f, uint8_t* codes, int64_t first, uint64_t eight) {
  if (bits_of(f) == 4) {
    store_codes<Format::int4>(codes + first / 2, eight);
  } else if (bits_of(f) == 8) {
    store_codes<Format::int8>(codes + first, eight);
  } else {
    for (uint32_t i = 0; i < 6; ++i) {
      hw::store_global(codes + code_offset(f, first) + i, static_cast<uint8_t>(eight >> 8 * i));
    }
  }
}

HT_DEVICE void store_scale(Format f, uint8_t* scales, int64_t i, uint32_t code) {
  if (f == Format::f32) {
    hw::store_global(reinterpret_cast<uint32_t*>(scales) + i, code);
  } else if (f == Format::f16 || f == Format::bf16) {
    hw::store_global(reinterpret_cast<uint16_t*>(scales) + i, static_cast<uint16_t>(code));
  } else {
    hw::store_global(scales + i, static_cast<uint8_t>(code));
  }
}

// A scale in f16 near `value`: scale_near by conversion instructions.
HT_DEVICE BlockScale f16_scale_near(float value) {
  const uint16_t code = hw::cvt_f16(hw::max(value, 0x1p-24f));
  const float rounded = hw::cvt_f32_f16(code);
  return {code, rounded, 1.0f / rounded};
}

// The largest |x| of a block as bits, a NaN above everything, and its range.
struct BlockRange {
  float most = 0, low = 0, up = 0;
  HT_DEVICE void add(const float (&x)[8], bool asymmetric) {
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) most = hw::max_nan(most, fabsf(x[i]));
    if (!asymmetric) return;
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) low = hw::min(low, x[i]), up = hw::max(up, x[i]);
  }
  HT_DEVICE bool finite() const { return magnitude(most) < kInfinityBits; }
  HT_DEVICE ZeroPoint scale(const Recipe& recipe) const {
    if (!finite()) return {poisoned_scale(recipe), 0};
    if (recipe.scale_format == Format::f16) return f16_scale(recipe);
    return recipe.asymmetric ? asymmetric_scale(recipe, low, up)
                             : ZeroPoint{block_scale(recipe, magnitude(most)), kInt4Zero};
  }

 private:
  // What scale_near would be given for a scale in f16 it is given for one in f32, which it keeps.
  HT_DEVICE ZeroPoint f16_scale(const Recipe& recipe) const {
    Recipe exact = recipe;
    exact.scale_format = Format::f32;
    if (!recipe.asymmetric) {
      return {f16_scale_near(block_scale(exact, magnitude(most)).value), kInt4Zero};
    }
    const BlockScale scale = f16_scale_near(asymmetric_scale(exact, low, up).scale.value);
    const float zero = (-low * scale.multiplier + kRoundingShift) - kRoundingShift;
    return {scale, zero < 15.0f ? static_cast<int>(zero) : 15};
  }
};

// The range of what a thread reads: of 16 bits two elements at a time, as they stand.
template <pipe::Access kAccess>
class ReadRange {
 public:
  using Eight = pipe::Eight<kAccess>;
  HT_DEVICE void add(const Eight& eight, bool asymmetric) {
    if constexpr (kHalf) {
      const auto words = std::bit_cast<hw::Words4>(eight);
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        most_ = hw::max_nan_pair<kType>(most_, words[i] & 0x7fff7fff);
      }
      if (!asymmetric) return;
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        low_ = hw::min_pair<kType>(low_, words[i]), up_ = hw::max_pair<kType>(up_, words[i]);
      }
    } else {
      float x[8];
      eight.widen(Format::f32, x);
      range_.add(x, asymmetric);
    }
  }
  HT_DEVICE BlockRange range() const {
    if constexpr (!kHalf) return range_;
    float low[3], high[3];
    const uint32_t pairs[3] = {most_, low_, up_};
    HT_UNROLL
    for (uint32_t i = 0; i < 3; ++i) pipe::widen_pair(kFormat, pairs[i], low[i], high[i]);
    return {hw::max_nan(low[0], high[0]), hw::min(low[1], high[1]), hw::max(low[2], high[2])};
  }

 private:
  static_assert(kAccess != pipe::Access::any, "elements are where quads_of says");
  static constexpr bool kHalf = kAccess != pipe::Access::f32;
  static constexpr Format kFormat = pipe::format_of(kAccess, Format::f32);
  static constexpr hw::Type kType =
      kAccess == pipe::Access::bf16 ? hw::Type::bf16x2 : hw::Type::f16x2;
  uint32_t most_ = 0, low_ = 0, up_ = 0;
  BlockRange range_;
};

// The scale of a block of nvfp4, block_scale, by conversion instructions: of sm_89 and later.
template <bool kConvert>
HT_DEVICE BlockScale nvfp4_scale(const Recipe& recipe, float most) {
  static_assert(kConvert, "others take block_scale");
  const float target = most * (recipe.encode_scale * (1.0f / 6.0f));
  const uint16_t code = hw::cvt_fp8x2<hw::Type::e4m3>(target, 0);
  const uint32_t halves = hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(code);
  const float value = hw::cvt_f32_f16(static_cast<uint16_t>(halves & 0xffff));
  const float inverse = 1.0f / (value * recipe.decode_scale);
  return {code, value, most == 0 ? 0 : hw::min(inverse, kFloatMax)};
}

// Where the scales of groups of rows stand, which are counted over all matrices.
struct GroupPlaces {
  uint32_t row_groups = 1;
  pipe::Divisor groups, rows;  // groups of a row, rows of a matrix

  GroupPlaces() = default;
  GroupPlaces(const QuantizeArgs& args, int64_t groups_of_row)
      : row_groups(static_cast<uint32_t>(groups_of_row)),
        groups(row_groups),
        rows(static_cast<uint32_t>(args.rows)) {}
  HT_DEVICE int64_t at(const QuantizeArgs& args, uint32_t group) const {
    if (args.layout == ScaleLayout::linear) return group;
    const uint32_t row = groups.divide(group);
    const uint32_t matrix = args.matrices == 1 ? 0 : rows.divide(row);
    const auto count = static_cast<uint32_t>(args.rows);
    return matrix * args.scale_bytes + scale_offset_in<uint32_t>(args.layout, count, row_groups,
                                                                 row - matrix * count,
                                                                 group - row * row_groups);
  }
};

HT_DEVICE ZeroPoint given_scale(float scale) {
  return {{std::bit_cast<uint32_t>(scale), scale, 1.0f / scale}, kInt4Zero};
}

// A block of elements that share a scale: number `index` of `down` x `across` in each matrix. Where
// there are fewer, the first one's place, which is not live.
struct BlockPlace {
  bool live;
  int64_t matrix, band, group;
  int64_t high, wide;       // of whole blocks
  int64_t first_row, left;  // its first row, counted over the matrices, and column
  int64_t rows, end;        // its rows, and the column behind it
  int64_t scale;            // where its scale is stored

  HT_DEVICE BlockPlace(const QuantizeArgs& args, int64_t index, int64_t down, int64_t across) {
    const int64_t blocks = down * across, n = index < args.matrices * blocks ? index : 0;
    live = n == index;
    matrix = n / blocks, band = n % blocks / across, group = n % across;
    high = args.block_rows > 0 ? args.block_rows : args.rows;
    wide = args.recipe.group > 0 ? args.recipe.group : args.columns;
    const int64_t top = band * high;
    first_row = matrix * args.rows + top, left = group * wide;
    rows = args.rows - top < high ? args.rows - top : high;
    end = left + wide < args.columns ? left + wide : args.columns;
    scale =
        args.layout == ScaleLayout::linear
            ? n
            : matrix * args.scale_bytes + scale_offset(args.layout, args.rows, across, band, group);
  }
};

// A scale as stored beside block (band, group) of a matrix; `index` counts the blocks of all.
HT_DEVICE void store_block_scale(const QuantizeArgs& args, const Recipe& recipe,
                                 const FaultReporter& faults, const BlockRange& range,
                                 const ZeroPoint& chosen, int64_t index, int64_t at) {
  store_scale(recipe.scale_format, args.scales, at, chosen.scale.code);
  if (recipe.asymmetric) {
    hw::store_global(args.zeros + index, static_cast<uint8_t>(chosen.zero));
  }
  // Of finite elements only an f16 scale can overflow.
  if (recipe.scale_format == Format::f16 && range.finite() &&
      !(chosen.scale.value < std::bit_cast<float>(kInfinityBits))) {
    pipe::report_fault(faults, Fault::quantize_scale, index, 0, 0);
  }
}

}  // namespace halftone

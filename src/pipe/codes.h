// Codes of the quantised formats as numbers, eight at a time, before their scales.
#pragma once
#include "formats/codec.h"
#include "pipe/elements.h"

namespace halftone::pipe {

HT_HOST_DEVICE bool has_nibbles(Format f) { return bits_of(f) == 4; }

// Four codes of six bits in the lower 24 to a byte each.
HT_HOST_DEVICE uint32_t spread_sixes(uint32_t w) {
  w = (w & 0xfff) | (w & 0xfff000) << 4;  // pairs
  return (w & 0x003f003f) | (w & 0x0fc00fc0) << 2;
}

// The number of a code; `zero` is subtracted from int4. Multiplying by a power of two re-biases the
// exponent of normal and subnormal codes alike.
template <Element kElement>
HT_DEVICE float decode_as(uint32_t code, [[maybe_unused]] float zero) {
  constexpr ElementTraits kTraits = traits_of(kElement);
  if constexpr (kElement == Element::e5m2) {
    return hw::cvt_f32_f16(static_cast<uint16_t>(code << 8));
  } else if constexpr (is_small_float(kElement)) {
    constexpr uint32_t kSign = 1u << (kTraits.bits - 1);
    constexpr float kBias =
        std::bit_cast<float>(static_cast<uint32_t>(126 + least_exponent(kElement) + 127) << 23);
    const uint32_t magnitude = code & (kSign - 1);
    const float value = std::bit_cast<float>(magnitude << (23 - kTraits.mantissa_bits)) * kBias;
    uint32_t number = std::bit_cast<uint32_t>(value);
    if constexpr (kElement == Element::e4m3) number = magnitude == 0x7f ? 0x7fc00000u : number;
    return std::bit_cast<float>(number | (code & kSign) << (32 - kTraits.bits));
  } else if constexpr (kElement == Element::int8) {
    return static_cast<float>(static_cast<int32_t>(code << 24) >> 24);
  } else {
    return static_cast<float>(code) - zero;
  }
}
HT_DEVICE float decode_code(Format f, uint32_t code, float zero = 8) {
  switch (element_of(f)) {
#define HALFTONE_X(name, ...) \
  case Element::name:         \
    return decode_as<Element::name>(code, zero);
    HALFTONE_SMALL_ELEMENTS(HALFTONE_X)
#undef HALFTONE_X
    default:
      return static_cast<float>(code) - zero;
  }
}

// Codes first .. first + 7 of a row (`first` a multiple of 8), a byte each in two words; those from
// `columns` on are 0.
HT_DEVICE hw::Vector<uint32_t, 2> load_codes(Format f, const char* row, int64_t first,
                                             int64_t columns, hw::Site site = hw::Site::current()) {
  using Pair = hw::Vector<uint32_t, 2>;
  if (bits_of(f) == 6) {
    // `first` and the row's end are multiples of 4: three bytes, all of which are there or none.
    Pair sixes{};
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      if (first + 4 * i >= columns) continue;
      const auto* three = reinterpret_cast<const uint8_t*>(row) + code_offset(f, first) + 3 * i;
      sixes[i] = spread_sixes(uint32_t{hw::load_global(three, site)} |
                              uint32_t{hw::load_global(three + 1, site)} << 8 |
                              uint32_t{hw::load_global(three + 2, site)} << 16);
    }
    return sixes;
  }
  const bool nibbles = has_nibbles(f);
  const char* at = row + (nibbles ? first / 2 : first);
  const uint32_t bytes = nibbles ? 4 : 8;
  Pair words{};
  if (first + 8 <= columns && is_aligned(at, bytes)) {
    if (nibbles) {
      words[0] = hw::load_global(reinterpret_cast<const uint32_t*>(at), site);
    } else {
      words = hw::load_global(reinterpret_cast<const Pair*>(at), site);
    }
  } else {
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      if (i >= bytes || first + (nibbles ? 2 * i : i) >= columns) continue;
      const auto code = hw::load_global(reinterpret_cast<const uint8_t*>(at) + i, site);
      words[i / 4] |= uint32_t{code} << 8 * (i % 4);
    }
  }
  if (nibbles) {
    // Eight nibbles to eight bytes: sixteen bits move up to each word, then bytes and nibbles.
    const uint32_t packed = words[0];
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      uint32_t w = packed >> 16 * half & 0xffff;
      w = (w | w << 8) & 0x00ff00ff;
      words[half] = (w | w << 4) & 0x0f0f0f0f;
    }
  }
  return words;
}

// Scale `i`: f32, f16, bf16, E4M3 or a power of two.
HT_DEVICE float load_scale(Format f, const char* scales, int64_t i,
                           hw::Site site = hw::Site::current()) {
  if (f == Format::f32 || f == Format::f16 || f == Format::bf16) {
    return load_element(f, scales + i * bytes_of(f), site);
  }
  const auto code = hw::load_global(reinterpret_cast<const uint8_t*>(scales) + i, site);
  return f == Format::ue8m0 ? decode_ue8m0(code) : decode_code(Format::fp8_e4m3, code);
}

}  // namespace halftone::pipe

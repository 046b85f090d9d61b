// Codes of the quantised formats as numbers, eight at a time, before their scales.
#pragma once
#include "formats/codec.h"
#include "pipe/elements.h"

namespace halftone::pipe {

HT_HOST_DEVICE bool has_nibbles(Format f) {
  return f == Format::mxfp4 || f == Format::nvfp4 || f == Format::int4;
}

// The number of a code; `zero` is subtracted from int4. Multiplying by a power of two re-biases the
// exponent of normal and subnormal codes alike.
HT_DEVICE float decode_code(Format f, uint32_t code, float zero = 8) {
  switch (f) {
    case Format::fp8_e4m3:
    case Format::mxfp8: {
      const uint32_t magnitude = code & 0x7f;
      const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
      const uint32_t number = magnitude == 0x7f ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
      return std::bit_cast<float>(number | (code & 0x80) << 24);
    }
    case Format::fp8_e5m2:
      return hw::cvt_f32_f16(static_cast<uint16_t>(code << 8));
    case Format::mxfp4:
    case Format::nvfp4: {
      const float value = std::bit_cast<float>((code & 7) << 22) * 0x1p126f;
      return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | (code & 8) << 28);
    }
    case Format::int8:
      return static_cast<float>(static_cast<int32_t>(code << 24) >> 24);
    default:
      return static_cast<float>(code) - zero;
  }
}

// Codes first .. first + 7 of a row (`first` a multiple of 8), a byte each in two words; those from
// `columns` on are 0.
HT_DEVICE hw::Vector<uint32_t, 2> load_codes(Format f, const char* row, int64_t first,
                                             int64_t columns, hw::Site site = hw::Site::current()) {
  using Pair = hw::Vector<uint32_t, 2>;
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

// Dequantisation of rows whose eights share a scale: codes times their scales, exactly, rounded
// once. A thread has the codes and the scales of four eights under way before it expands them.
#pragma once
#include "formats/gpu_kernels.h"
#include "formats/scale_layout.h"
#include "hw/thread.h"
#include "pipe/access.h"
#include "pipe/codes.h"

namespace halftone {

// The scale of a code: f32, f16, bf16, E4M3 or a power of two.
HT_DEVICE float scale_of_code(Format f, uint32_t code) {
  switch (f) {
    case Format::f32:
      return std::bit_cast<float>(code);
    case Format::f16:
      return hw::cvt_f32_f16(static_cast<uint16_t>(code));
    case Format::bf16:
      return hw::cvt_f32_bf16(static_cast<uint16_t>(code));
    case Format::ue8m0:
      return decode_ue8m0(static_cast<uint8_t>(code));
    default:
      return pipe::decode_code(Format::fp8_e4m3, code);
  }
}

struct ExpandParams {
  DequantizeArgs args;
  uint32_t count;         // eights in all
  uint32_t eights;        // of a row
  uint32_t group_eights;  // of a group, where scales follow each other as groups do; else 0
  bool dense;             // and codes without gaps
  bool exact;  // an element times its scale is: the scale is a power of two or there is none
};

// kConvert: FP8 by the conversion instruction of sm_89 and later.
template <pipe::Access kAccess, bool kConvert>
struct ExpandGpu {
  using Params = ExpandParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 4;
  static constexpr uint32_t kEights = 4;  // of a thread

  // Where an eight's scale and zero point lie, in elements; of tiled layouts in bytes.
  struct Place {
    int64_t scale, zero;
  };
  HT_DEVICE static Place place_of(const Params& p, uint32_t n) {
    const DequantizeArgs& args = p.args;
    if (p.group_eights != 0) {  // groups of rows, one after the other
      const int64_t group = n / p.group_eights;
      return {group, group};
    }
    const uint32_t row = n / p.eights, rows = static_cast<uint32_t>(args.rows);
    const uint32_t matrix = args.matrices == 1 ? 0 : row / rows, r = row - matrix * rows;
    const uint32_t column = (n - row * p.eights) * 8;
    const auto wide = static_cast<uint32_t>(args.block_columns);
    const uint32_t g = wide == 0 ? 0 : column / wide;
    if (args.layout != ScaleLayout::linear) {
      const int64_t groups = (args.columns + wide - 1) / wide;
      return {matrix * args.scale_matrix + scale_offset(args.layout, args.rows, groups, r, g), 0};
    }
    const auto high = static_cast<uint32_t>(args.block_rows);
    const uint32_t band = high == 0 ? 0 : high == 1 ? r : r / high;
    return {matrix * args.scale_matrix + band * args.scale_row + g * args.scale_column,
            matrix * args.zero_matrix + band * args.zero_row + g * args.zero_column};
  }

  // A scale as stored.
  HT_DEVICE static uint32_t load_scale_code(const DequantizeArgs& args, int64_t i) {
    if (args.scales == nullptr) return 0;
    switch (args.scale_format) {
      case Format::f32:
        return hw::load_global(reinterpret_cast<const uint32_t*>(args.scales) + i);
      case Format::f16:
      case Format::bf16:
        return hw::load_global(reinterpret_cast<const uint16_t*>(args.scales) + i);
      default:
        return hw::load_global(reinterpret_cast<const uint8_t*>(args.scales) + i);
    }
  }

  // Eight numbers before their scale.
  HT_DEVICE static void decode(Format f, const hw::Vector<uint32_t, 2>& codes, float zero,
                               float (&x)[8]) {
    if constexpr (kConvert) {
      if (f == Format::fp8_e4m3 || f == Format::mxfp8) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; i += 2) {
          const auto pair = static_cast<uint16_t>(codes[i / 4] >> 8 * (i % 4));
          pipe::widen_pair(Format::f16, hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(pair), x[i], x[i + 1]);
        }
        return;
      }
    }
    // 2^23 plus a small integer ends in its bits.
    const auto integer = [](uint32_t n) { return std::bit_cast<float>(n | 0x4b000000); };
    const auto byte = [&](uint32_t i) { return codes[i / 4] >> 8 * (i % 4) & 0xff; };
    const auto each = [&](const auto& number) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) x[i] = number(i);
    };
    switch (f) {
      case Format::int8:
        return each([&](uint32_t i) { return integer(byte(i) ^ 0x80) - (0x1p23f + 128); });
      case Format::int4:
        return each([&](uint32_t i) { return integer(codes[0] >> 4 * i & 15) - (0x1p23f + zero); });
      case Format::mxfp4:
      case Format::nvfp4:
        return each(
            [&](uint32_t i) { return pipe::decode_code(Format::nvfp4, codes[0] >> 4 * i); });
      case Format::fp8_e5m2:
        return each([&](uint32_t i) { return pipe::decode_code(Format::fp8_e5m2, byte(i)); });
      default:
        return each([&](uint32_t i) { return pipe::decode_code(Format::fp8_e4m3, byte(i)); });
    }
  }

  // a b as f32 for a second rounding to 16 bits: towards zero, and odd where that was not exact, so
  // that the two round as one.
  template <bool kExact>
  HT_DEVICE static float product(float a, float b) {
    if constexpr (kAccess == pipe::Access::f32 || kExact) return a * b;
    const float p = hw::mul<hw::Rounding::rz>(a, b);
    const bool rounded = fabsf(hw::fma(a, b, -p)) > 0;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(p) | (rounded ? 1u : 0u));
  }

  HT_DEVICE static void run(const Params& p) {
    const DequantizeArgs& args = p.args;
    const bool nibbles = pipe::has_nibbles(args.format);
    const uint32_t first = hw::block_index().x * kThreads * kEights + hw::thread_index().x;
    hw::Vector<uint32_t, 2> codes[kEights];
    uint32_t scale_codes[kEights], zeros[kEights];
    HT_UNROLL
    for (uint32_t i = 0; i < kEights; ++i) {
      const uint32_t n = first + i * kThreads;
      codes[i] = {};
      if (n >= p.count) continue;
      const uint32_t row = p.dense ? 0 : n / p.eights, eight = n - row * p.eights;
      const char* at = args.codes[row] + int64_t{eight} * (nibbles ? 4 : 8);
      if (nibbles) {
        codes[i][0] = hw::load_global(reinterpret_cast<const uint32_t*>(at));
      } else {
        codes[i] = hw::load_global(reinterpret_cast<const hw::Vector<uint32_t, 2>*>(at));
      }
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kEights; ++i) {
      const uint32_t n = first + i * kThreads;
      scale_codes[i] = 0, zeros[i] = 8;
      if (n >= p.count) continue;
      const Place at = place_of(p, n);
      scale_codes[i] = load_scale_code(args, at.scale);
      if (args.zeros != nullptr) zeros[i] = hw::load_global(args.zeros + at.zero);
    }
    const float factor = args.tensor_scale != nullptr ? hw::load_global(args.tensor_scale) : 1;
    HT_UNROLL
    for (uint32_t i = 0; i < kEights; ++i) {
      const uint32_t n = first + i * kThreads;
      if (n >= p.count) continue;
      float x[8];
      decode(args.format, codes[i], static_cast<float>(zeros[i]), x);
      const float scale =
          args.scales == nullptr ? 1 : scale_of_code(args.scale_format, scale_codes[i]);
      if (args.tensor_scale != nullptr) {
        // The element times its scale has few bits and is exact.
        HT_UNROLL
        for (uint32_t k = 0; k < 8; ++k) x[k] = product<false>(x[k] * scale, factor);
      } else if (p.exact) {
        HT_UNROLL
        for (uint32_t k = 0; k < 8; ++k) x[k] = product<true>(x[k], scale);
      } else {
        HT_UNROLL
        for (uint32_t k = 0; k < 8; ++k) x[k] = product<false>(x[k], scale);
      }
      pipe::Eight<kAccess> result;
      result.narrow(args.out_format, x);
      constexpr uint32_t kBytes = kAccess == pipe::Access::f32 ? 4 : 2;
      result.store(args.out_format, args.out + int64_t{n} * 8 * kBytes, {0, 4}, 8);
    }
  }
};

}  // namespace halftone

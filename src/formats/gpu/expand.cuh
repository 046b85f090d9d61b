// Rows of codes whose eights share a scale as numbers: codes times their scales. A thread has the
// codes and the scales of four eights under way before it expands them.
#pragma once
#include "base/launch.h"
#include "formats/gpu/encode.cuh"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "pipe/access.h"
#include "pipe/codes.h"
#include "pipe/divisor.h"

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
  // A result without gaps whose scales follow each other as its groups do is one row.
  bool flat;
  uint32_t row_count, row_eights;  // of the result
  // A row is cut into units of kEights times 2^shift eights: a thread has kEights at that distance.
  uint32_t shift, row_units;
  // Scale g of a row lies (g >> tile_shift) tile_steps and g modulo 2^tile_shift elements behind
  // the row's first one.
  uint32_t tile_shift, tile_step;
  uint32_t groups;  // of a row
  pipe::Divisor units;
  pipe::Divisor group_eights;  // of a group
  pipe::Divisor rows, high;    // of a matrix, of a block
};

// Whether an ExpandGpu makes `result_rows` rows from these codes; its parameters, where it gathers
// of rows in any order; and its launch.
bool expands(const DequantizeArgs&, int64_t result_rows);
ExpandParams expand_params(const DequantizeArgs&, int64_t result_rows, bool gathers);
LaunchShape expand_shape(const ExpandParams&);

// Products that are rounded once, or to f32 first.
enum class Products : uint8_t { rounded_once, through_f32 };

// kConvert: FP8 by the conversion instruction of sm_89 and later.
template <pipe::Access kAccess, bool kConvert>
struct ExpandGpu {
  using Params = ExpandParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 4;
  static constexpr uint32_t kEights = 4;  // of a thread
  static constexpr bool kHalf = kAccess != pipe::Access::f32;

  // What a thread has: eights `first`, `first` + 2^shift, ... of a row of the result.
  struct Eights {
    uint32_t row, first;
  };
  HT_DEVICE static Eights eights_of(const Params& p) {
    const uint32_t thread = hw::thread_index().x, width = 1u << p.shift;
    const uint32_t unit = hw::block_index().x * (kThreads >> p.shift) + (thread >> p.shift);
    const uint32_t row = p.flat ? 0 : p.units.divide(unit);
    return {row, (unit - row * p.row_units) * kEights * width + (thread & (width - 1))};
  }

  // Where a row's scales and zero points begin, in elements; of tiled layouts in bytes.
  struct Scales {
    int64_t scale = 0, zero = 0;
  };
  HT_DEVICE static Scales scales_of(const Params& p, uint32_t row) {
    const DequantizeArgs& args = p.args;
    Scales at;
    if (p.flat) return at;
    uint32_t r = row;
    if (args.matrices > 1) {
      const uint32_t matrix = p.rows.divide(row);
      r = row - matrix * static_cast<uint32_t>(args.rows);
      at = {matrix * args.scale_matrix, matrix * args.zero_matrix};
    }
    if (args.layout != ScaleLayout::linear) {
      at.scale += scale_offset(args.layout, args.rows, p.groups, r, 0);
      return at;
    }
    const uint32_t band = args.block_rows == 1 ? r : p.high.divide(r);
    at.scale += band * args.scale_row, at.zero += band * args.zero_row;
    return at;
  }

  // Eight numbers before their scale.
  template <Format kFormat>
  HT_DEVICE static void decode(const hw::Vector<uint32_t, 2>& codes, float zero, float (&x)[8]) {
    // 2^23 plus a small integer ends in its bits.
    constexpr uint32_t kInteger = 0x4b000000;
    constexpr Element kElement = element_of(kFormat);
    if constexpr (kElement == Element::e2m1) {
      // Two nibbles, 16 bits apart, as f16 that are 2^-14 of their values.
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t w = codes[0] >> 4 * i;
        const uint32_t pair = (w << 12 & 0x80008000u) | (w << 9 & 0x0e000e00u);
        pipe::widen_pair(Format::f16, pair, x[i], x[i + 4]);
        x[i] *= 0x1p14f, x[i + 4] *= 0x1p14f;
      }
    } else if constexpr (kConvert && kElement == Element::e4m3) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; i += 2) {
        const auto pair = static_cast<uint16_t>(codes[i / 4] >> 8 * (i % 4));
        pipe::widen_pair(Format::f16, hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(pair), x[i], x[i + 1]);
      }
    } else if constexpr (kElement == Element::e5m2) {  // the upper halves of f16
      HT_UNROLL
      for (uint32_t i = 0; i < 8; i += 2) {
        const uint32_t pair = hw::prmt(codes[i / 4], 0, i % 4 == 0 ? 0x1404 : 0x3424);
        pipe::widen_pair(Format::f16, pair, x[i], x[i + 1]);
      }
    } else if constexpr (kElement == Element::int8) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t integer = hw::prmt(codes[i / 4] ^ 0x80808080, kInteger, 0x7440 | i % 4);
        x[i] = std::bit_cast<float>(integer) - (0x1p23f + 128);
      }
    } else if constexpr (kElement == Element::int4) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        x[i] = std::bit_cast<float>((codes[0] >> 4 * i & 15) | kInteger) - (0x1p23f + zero);
      }
    } else {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        x[i] = pipe::decode_code(kFormat, codes[i / 4] >> 8 * (i % 4) & 0xff);
      }
    }
  }

  // a b as f32. For a second rounding to 16 bits: towards zero, and odd where that was not exact,
  // so that the two round as one.
  template <bool kExact>
  HT_DEVICE static float product(float a, float b) {
    if constexpr (!kHalf || kExact) return a * b;
    const float p = hw::mul<hw::Rounding::rz>(a, b);
    const bool rounded = fabsf(hw::fma(a, b, -p)) > 0;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(p) | (rounded ? 1u : 0u));
  }

  // Eight codes of E2M1 times a scale, whose products with 1 and 1.5, rounded to 16 bits, are
  // `pair`. The other magnitudes are powers of two times these: a table of eight, which the codes'
  // nibbles select from a byte at a time. False: the table would leave the normal numbers.
  HT_DEVICE static bool select_e2m1(uint32_t codes, uint32_t pair, hw::Words4& words) {
    constexpr uint32_t kBinade = kAccess == pipe::Access::bf16 ? 0x80 : 0x400;
    constexpr uint32_t kEnd = kAccess == pipe::Access::bf16 ? 0x7f80 : 0x7c00;
    constexpr uint32_t kBoth = 0x10001;
    if ((pair & 0xffff) - 2 * kBinade >= kEnd - 5 * kBinade) return false;
    const uint32_t small = (pair << 16) - (kBinade << 16);  // 0 and 0.5
    const uint32_t two = pair + kBinade * kBoth, four = pair + 2 * kBinade * kBoth;
    const uint32_t low[2] = {hw::prmt(small, pair, 0x6420), hw::prmt(two, four, 0x6420)};
    const uint32_t high[2] = {hw::prmt(small, pair, 0x7531), hw::prmt(two, four, 0x7531)};
    const uint32_t shifted = codes << 4;
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {  // of four codes
      const uint32_t which = (codes & 0x77777777) >> 16 * i;
      // The sign of the byte that ends in a code, over a byte.
      const uint32_t signs = hw::prmt(shifted, codes, i == 0 ? 0xd9c8 : 0xfbea) & 0x80808080;
      const uint32_t lows = hw::prmt(low[0], low[1], which);
      const uint32_t highs = hw::prmt(high[0], high[1], which) | signs;
      words[2 * i] = hw::prmt(lows, highs, 0x5140);
      words[2 * i + 1] = hw::prmt(lows, highs, 0x7362);
    }
    return true;
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    run<Products::rounded_once>(p, [](uint32_t row) { return int64_t{row}; });
  }

  // read(i, g) of each of the thread's eights that exist, in group g of the row.
  template <class Read>
  HT_DEVICE static void for_groups(const Params& p, uint32_t first, const Read& read) {
    HT_UNROLL
    for (uint32_t i = 0; i < kEights; ++i) {
      const uint32_t eight = first + (i << p.shift);
      if (eight < p.row_eights) read(i, p.group_eights.divide(eight));
    }
  }
  template <class Code>
  HT_DEVICE static void load_scales(const Params& p, uint32_t first, int64_t begin,
                                    uint32_t (&codes)[kEights]) {
    const Code* const scales = reinterpret_cast<const Code*>(p.args.scales) + begin;
    for_groups(p, first, [&](uint32_t i, uint32_t g) {
      const uint32_t tile = g >> p.tile_shift;
      codes[i] = hw::load_global(scales + (tile * p.tile_step + (g - (tile << p.tile_shift))));
    });
  }

  // Row r of the result is row from(r) of the codes; -1: zeros.
  template <Products kProducts, class From>
  HT_DEVICE static void run(const Params& p, const From& from) {
    const DequantizeArgs& args = p.args;
    const Eights eights = eights_of(p);
    if (eights.row >= p.row_count) return;
    const int64_t row = from(eights.row);
    const uint32_t width = 1u << p.shift;
    hw::Vector<uint32_t, 2> codes[kEights] = {};
    uint32_t scale_codes[kEights] = {}, zeros[kEights];
    HT_UNROLL
    for (uint32_t& zero : zeros) zero = 8;
    if (row >= 0) {
      const char* const line = args.codes.base + row * args.codes.outer_stride;
      if (bits_of(args.format) == 4) {
        const auto* at = reinterpret_cast<const uint32_t*>(line) + eights.first;
        HT_UNROLL
        for (uint32_t i = 0; i < kEights; ++i, at += width) {
          if (eights.first + i * width < p.row_eights) codes[i][0] = hw::load_global(at);
        }
      } else if (bits_of(args.format) == 6) {
        const auto* at = reinterpret_cast<const uint16_t*>(line) + 3 * uint64_t{eights.first};
        HT_UNROLL
        for (uint32_t i = 0; i < kEights; ++i, at += 3 * width) {
          if (eights.first + i * width >= p.row_eights) continue;
          const uint32_t part[3] = {hw::load_global(at), hw::load_global(at + 1),
                                    hw::load_global(at + 2)};
          codes[i][0] = pipe::spread_sixes(part[0] | part[1] << 16);
          codes[i][1] = pipe::spread_sixes(part[1] >> 8 | part[2] << 8);
        }
      } else {
        const auto* at = reinterpret_cast<const hw::Vector<uint32_t, 2>*>(line) + eights.first;
        HT_UNROLL
        for (uint32_t i = 0; i < kEights; ++i, at += width) {
          if (eights.first + i * width < p.row_eights) codes[i] = hw::load_global(at);
        }
      }
      const Scales at = scales_of(p, static_cast<uint32_t>(row));
      if (args.scales == nullptr) {  // 1
      } else if (args.scale_format == Format::f32) {
        load_scales<uint32_t>(p, eights.first, at.scale, scale_codes);
      } else if (args.scale_format == Format::f16 || args.scale_format == Format::bf16) {
        load_scales<uint16_t>(p, eights.first, at.scale, scale_codes);
      } else {
        load_scales<uint8_t>(p, eights.first, at.scale, scale_codes);
      }
      if (args.zeros != nullptr) {
        const auto step = p.flat ? 1u : static_cast<uint32_t>(args.zero_column);
        for_groups(p, eights.first, [&](uint32_t i, uint32_t g) {
          zeros[i] = hw::load_global(args.zeros + at.zero + g * step);
        });
      }
    } else if (args.format == Format::int4) {
      HT_UNROLL
      for (auto& of_zero : codes) of_zero[0] = 0x88888888;
    }
    const float factor = args.tensor_scale != nullptr ? hw::load_global(args.tensor_scale) : 1;
    const Format scale_format = args.scales == nullptr ? Format::f32 : args.scale_format;
    constexpr uint32_t kBytes = kHalf ? 16 : 32;
    for_kind_of(args.format, scale_format, false, [&](auto kind) {
      char* out = args.out + (uint64_t{eights.row} * p.row_eights + eights.first) * kBytes;
      HT_UNROLL
      for (uint32_t i = 0; i < kEights; ++i, out += width * kBytes) {
        if (eights.first + i * width >= p.row_eights) continue;
        expand<decltype(kind), kProducts>(args, out, codes[i], scale_codes[i],
                                          static_cast<float>(zeros[i]), factor);
      }
    });
  }

  template <class Kind, Products kProducts>
  HT_DEVICE static void expand(const DequantizeArgs& args, char* out,
                               const hw::Vector<uint32_t, 2>& codes, uint32_t scale_code,
                               float zero, float factor) {
    constexpr bool kOnce = kProducts == Products::rounded_once;
    constexpr bool kE2m1 = Kind::kElement == Element::e2m1;
    const Format scale_format = Kind::kFixed ? Kind::kScale : args.scale_format;
    float scale = 1;
    if constexpr (Kind::kFixed && kConvert && Kind::kScale == Format::fp8_e4m3) {
      const auto pair = hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(static_cast<uint16_t>(scale_code));
      scale = hw::cvt_f32_f16(static_cast<uint16_t>(pair & 0xffff));
    } else if (args.scales != nullptr) {
      scale = scale_of_code(scale_format, scale_code);
    }
    // An element times its scale is exact, unless that is f32: elements have up to 8 bits, the
    // other scales up to 11.
    const bool exact = args.scales == nullptr || scale_format != Format::f32;
    const auto times_factor = [&](float x) {
      return args.tensor_scale != nullptr ? product<!kOnce>(x, factor) : x;
    };
    if constexpr (kHalf && Kind::kFixed && kE2m1) {
      const uint32_t pair = pipe::narrow_pair(pipe::format_of(kAccess, Format::f32),
                                              times_factor(scale), times_factor(1.5f * scale));
      hw::Words4 words;
      if (select_e2m1(codes[0], pair, words)) {
        return hw::store_global(reinterpret_cast<hw::Words4*>(out), words);
      }
    }
    float x[8];
    if constexpr (Kind::kFixed) {
      decode<Kind::kFormat>(codes, zero, x);
    } else {
      for_elements_of(args.format, [&](auto format) { decode<format.value>(codes, zero, x); });
    }
    if (args.tensor_scale != nullptr) {
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) x[k] = product<!kOnce>(x[k] * scale, factor);
    } else if (exact) {
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) x[k] = x[k] * scale;
    } else {
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) x[k] = product<!kOnce>(x[k], scale);
    }
    pipe::Eight<kAccess> result;
    result.narrow(args.out_format, x);
    result.store(args.out_format, out, {0, 4}, 8);
  }
};

}  // namespace halftone

// Quantisation on GPUs: one group of threads a block of elements that share a scale; its elements
// stay in registers from their maximum to their codes. The bits are those of the CPU.
#pragma once
#include "formats/gpu_kernels.h"
#include "formats/quantize_rows.h"
#include "formats/scale_layout.h"
#include "pipe/codes.h"
#include "pipe/fault.h"
#include "pipe/row_threads.h"

namespace halftone {

// Eight elements of a block of rows x columns, row by row.
struct BlockPlace {
  int64_t row;  // of the tensor
  pipe::Quads at;
};

// kConvert: FP8 by the conversion instruction of sm_89 and later.
template <bool kConvert>
struct QuantizeGpu {
  struct Params {
    QuantizeArgs args;
    FaultReporter faults;
    int64_t down, across;  // blocks of a matrix
    uint32_t row_threads;
  };
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 1;
  static constexpr uint32_t kKept = 4;  // eights of a thread: 128 x 128 elements stay in registers

  HT_DEVICE static uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffff; }

  HT_DEVICE static uint64_t encode(const Recipe& r, const float (&x)[8], float multiplier,
                                   int zero) {
    uint64_t codes = 0;
    if constexpr (kConvert) {
      const bool e5m2 = r.format == Format::fp8_e5m2;
      if (e5m2 || r.format == Format::fp8_e4m3 || r.format == Format::mxfp8) {
        HT_UNROLL
        for (uint32_t i = 0; i < 8; i += 2) {
          const float low = x[i] * multiplier, high = x[i + 1] * multiplier;
          const uint16_t pair = e5m2 ? hw::cvt_fp8x2<hw::Type::e5m2>(low, high)
                                     : hw::cvt_fp8x2<hw::Type::e4m3>(low, high);
          codes |= uint64_t{pair} << 8 * i;
        }
        return codes;
      }
    }
    const uint32_t bits = is_four_bits(r.format) ? 4 : 8;
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      codes |= uint64_t{encode_element(r.format, x[i] * multiplier, zero)} << bits * i;
    }
    return codes;
  }

  // Codes of columns first .. of a row; the high half of an odd last byte is 0.
  HT_DEVICE static void store_codes(Format f, uint8_t* row, int64_t first, int64_t columns,
                                    uint64_t codes) {
    const bool nibbles = is_four_bits(f);
    uint8_t* at = row + (nibbles ? first / 2 : first);
    const uint32_t bytes = nibbles ? 4 : 8;
    if (first + 8 <= columns && pipe::is_aligned(at, bytes)) {
      if (nibbles) {
        return hw::store_global(reinterpret_cast<uint32_t*>(at), static_cast<uint32_t>(codes));
      }
      const hw::Vector<uint32_t, 2> words{
          {static_cast<uint32_t>(codes), static_cast<uint32_t>(codes >> 32)}};
      return hw::store_global(reinterpret_cast<hw::Vector<uint32_t, 2>*>(at), words);
    }
    const int64_t left = columns - first;
    const auto count = static_cast<uint32_t>(left < 8 ? left : 8);
    if (nibbles && count < 8) codes &= (uint64_t{1} << 4 * count) - 1;
    for (uint32_t i = 0; i < (nibbles ? (count + 1) / 2 : count); ++i) {
      hw::store_global(at + i, static_cast<uint8_t>(codes >> 8 * i & 0xff));
    }
  }

  HT_DEVICE static void store_scale(Format f, uint8_t* scales, int64_t i, uint32_t code) {
    if (f == Format::f32) {
      hw::store_global(reinterpret_cast<uint32_t*>(scales) + i, code);
    } else if (f == Format::f16 || f == Format::bf16) {
      hw::store_global(reinterpret_cast<uint16_t*>(scales) + i, static_cast<uint16_t>(code));
    } else {
      hw::store_global(scales + i, static_cast<uint8_t>(code));
    }
  }

  HT_DEVICE static void run(const Params& p) {
    const QuantizeArgs& args = p.args;
    pipe::RowThreads threads(p.row_threads);
    const int64_t index = threads.row(), blocks = p.down * p.across;
    const bool live = index < args.matrices * blocks;
    const int64_t matrix = live ? index / blocks : 0;
    const int64_t band = live ? index % blocks / p.across : 0;
    const int64_t group = live ? index % p.across : 0;
    const int64_t high = args.block_rows > 0 ? args.block_rows : args.rows;
    const int64_t wide = args.recipe.group > 0 ? args.recipe.group : args.columns;
    const int64_t top = band * high, left = group * wide;
    const int64_t rows = args.rows - top < high ? args.rows - top : high;
    const int64_t columns = left + wide < args.columns ? left + wide : args.columns;  // the end
    const int64_t eights = (columns - left + 7) / 8;
    const int64_t count = live ? rows * eights : 0;
    const auto number = [&](uint32_t step) {
      return int64_t{step} * threads.threads() + threads.rank();
    };
    const auto place = [&](uint32_t step) {
      const int64_t n = number(step), r = rows == 1 ? 0 : n / eights;
      const int64_t first = left + (n - r * eights) * 8;
      return BlockPlace{matrix * args.rows + top + r, {first, first + 4}};
    };
    const auto read = [&](uint32_t step, float(&v)[8]) {
      const BlockPlace at = place(step);
      pipe::load_eight(args.source, args.x[at.row], at.at, columns, v);
    };
    float kept[kKept][8];
    // Calls each(step, values) for this thread's eights.
    const auto for_eights = [&](const auto& each) {
      HT_UNROLL
      for (uint32_t step = 0; step < kKept; ++step) {
        if (number(step) < count) each(step, kept[step]);
      }
      for (uint32_t step = kKept; number(step) < count; ++step) {
        float more[8];
        read(step, more);
        each(step, more);
      }
    };
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) {
      if (number(step) < count) read(step, kept[step]);
    }

    Recipe recipe = args.recipe;
    if (args.amax != nullptr) {
      set_tensor_amax(std::bit_cast<float>(hw::load_global(args.amax)), &recipe);
    }
    if (args.tensor_scale != nullptr && index == 0 && threads.rank() == 0) {
      hw::store_global(args.tensor_scale, recipe.tensor_scale);
    }
    uint32_t largest = 0;  // as bits: a NaN is above everything
    float low = 0, up = 0;
    for_eights([&](uint32_t, const float(&v)[8]) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        largest = magnitude(v[i]) > largest ? magnitude(v[i]) : largest;
        low = v[i] < low ? v[i] : low;
        up = v[i] > up ? v[i] : up;
      }
    });
    const auto larger = [](float a, float b) {
      return std::bit_cast<uint32_t>(a) > std::bit_cast<uint32_t>(b) ? a : b;
    };
    largest = std::bit_cast<uint32_t>(threads.reduce(std::bit_cast<float>(largest), larger));
    if (recipe.asymmetric) {
      low = threads.reduce(low, [](float a, float b) { return a < b ? a : b; });
      up = threads.reduce(up, [](float a, float b) { return a > b ? a : b; });
    }
    if (!live) return;
    const bool finite = largest < kInfinityBits;
    ZeroPoint chosen{poisoned_scale(recipe), 0};
    if (finite) {
      chosen = recipe.asymmetric ? asymmetric_scale(recipe, low, up)
                                 : ZeroPoint{block_scale(recipe, largest), kInt4Zero};
    }
    if (threads.rank() == 0) {
      const int64_t first = matrix * args.scale_bytes;
      const int64_t at = args.layout == ScaleLayout::linear
                             ? band * p.across + group
                             : scale_offset(args.layout, args.rows, p.across, band, group);
      store_scale(recipe.scale_format, args.scales + first, at, chosen.scale.code);
      if (recipe.asymmetric) {
        hw::store_global(args.zeros + index, static_cast<uint8_t>(chosen.zero));
      }
      if (finite && !(chosen.scale.value < std::bit_cast<float>(kInfinityBits))) {
        pipe::report_fault(p.faults, Fault::quantize_scale, index, 0, 0);
      }
    }
    const int64_t pitch = is_four_bits(recipe.format) ? args.columns / 2 : args.columns;
    const auto write = [&](uint32_t step, uint64_t codes) {
      const BlockPlace at = place(step);
      store_codes(recipe.format, args.codes + at.row * pitch, at.at.first, columns, codes);
    };
    for_eights([&](uint32_t step, const float(&v)[8]) {
      write(step, finite ? encode(recipe, v, chosen.scale.multiplier, chosen.zero) : 0);
    });
  }
};

// The largest finite |x|, of a grid of threads.
struct AmaxGpu {
  struct Params {
    QuantizeArgs args;
    uint32_t* largest;
  };
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1;

  HT_DEVICE static void run(const Params& p) {
    const QuantizeArgs& args = p.args;
    const int64_t eights = (args.columns + 7) / 8, count = args.matrices * args.rows * eights;
    uint32_t most = 0;
    const int64_t step = int64_t{kThreads} * hw::grid_size().x;
    for (int64_t n = int64_t{kThreads} * hw::block_index().x + hw::thread_index().x; n < count;
         n += step) {
      const int64_t row = n / eights, first = (n - row * eights) * 8;
      float x[8];
      pipe::load_eight(args.source, args.x[row], {first, first + 4}, args.columns, x);
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffff;
        if (bits < kInfinityBits && bits > most) most = bits;
      }
    }
    pipe::RowThreads threads(kThreads);
    const float top = threads.max(std::bit_cast<float>(most));
    if (hw::thread_index().x == 0) {
      hw::reduce_global<hw::Atomic::max>(p.largest, std::bit_cast<uint32_t>(top));
    }
  }
};

// Codes times their scales, exactly, rounded once.
struct DequantizeGpu {
  struct Params {
    DequantizeArgs args;
    uint32_t row_threads;
  };
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 1;

  // a b as f32, for a second rounding to 16 bits: rounded to odd, so that the two round as one.
  HT_DEVICE static float product(float a, float b, bool to_odd) {
    const float p = a * b, error = hw::fma(a, b, -p);
    const uint32_t bits = std::bit_cast<uint32_t>(p);
    if (!to_odd || error == 0 || error != error || (bits & 1) != 0) return p;
    return std::bit_cast<float>((error > 0) == (p > 0) ? bits | 1 : bits - 1);
  }

  HT_DEVICE static void run(const Params& p) {
    const DequantizeArgs& args = p.args;
    const pipe::RowThreads threads(p.row_threads);
    const int64_t row = threads.row();
    if (row >= args.matrices * args.rows) return;
    const int64_t matrix = row / args.rows, r = row - matrix * args.rows;
    const int64_t band = args.block_rows > 0 ? r / args.block_rows : 0;
    const int64_t wide = args.block_columns > 0 ? args.block_columns : args.columns;
    const int64_t groups = (args.columns + wide - 1) / wide;
    const char* codes_row = args.codes[row];
    char* out = args.out + row * args.columns * pipe::bytes_of(args.out_format);
    const float factor = args.tensor_scale != nullptr ? hw::load_global(args.tensor_scale) : 1;
    const bool to_odd = args.out_format != Format::f32;
    const bool plain =
        args.format == Format::f32 || args.format == Format::f16 || args.format == Format::bf16;
    float scale = 1, zero = 8;
    int64_t group = -1;
    for (int64_t first = int64_t{8} * threads.rank(); first < args.columns;
         first += int64_t{8} * threads.threads()) {
      float x[8] = {};
      if (plain) {
        pipe::load_eight(args.format, codes_row, {first, first + 4}, args.columns, x);
        pipe::store_eight(args.out_format, out, {first, first + 4}, args.columns, x);
        continue;
      }
      const auto codes = pipe::load_codes(args.format, codes_row, first, args.columns);
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        if (first + i >= args.columns) continue;
        const int64_t g = (first + i) / wide;
        if (g != group) {
          group = g;
          if (args.scales != nullptr && args.layout != ScaleLayout::linear) {
            scale = pipe::load_scale(args.scale_format, args.scales + matrix * args.scale_matrix,
                                     scale_offset(args.layout, args.rows, groups, r, g));
          } else if (args.scales != nullptr) {
            scale = pipe::load_scale(
                args.scale_format, args.scales,
                matrix * args.scale_matrix + band * args.scale_row + g * args.scale_column);
          }
          if (args.zeros != nullptr) {
            zero = hw::load_global(args.zeros + matrix * args.zero_matrix + band * args.zero_row +
                                   g * args.zero_column);
          }
        }
        const float value =
            pipe::decode_code(args.format, codes[i / 4] >> 8 * (i % 4) & 0xff, zero);
        // With a tensor scale the element times its scale has few bits and is exact.
        x[i] = args.tensor_scale != nullptr ? product(value * scale, factor, to_odd)
                                            : product(value, scale, to_odd);
      }
      pipe::store_eight(args.out_format, out, {first, first + 4}, args.columns, x);
    }
  }
};

}  // namespace halftone

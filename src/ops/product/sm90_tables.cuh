// What multiplies the codes of a stage of W, or their sums: made by three warps beside the one that
// starts the copies, each for stages of its own.
#pragma once
#include "hw/warp.h"
#include "ops/product/sm90_stages.h"

namespace halftone::product {

template <GpuCode kCode, Sm90Scales kScales, uint32_t kColumns>
struct Sm90Tables {
  using Stages = Sm90Stages<kCode, kScales, kColumns>;
  using Policy = typename Stages::Policy;
  using Tile = typename Stages::Tile;
  static constexpr uint32_t kWarps = 3, kRowsOfLane = Stages::kRows / 32;

  // Scales of one byte come by fours, which are neighbours in every layout.
  static constexpr uint32_t kFours = Stages::kSlots / 4;

  // The table of the stage that begins at k0, loaded before it is free and written after that.
  struct Bytes {
    uint32_t word[kRowsOfLane][kFours > 0 ? kFours : 1];
  };
  HT_DEVICE static void load(const GpuProduct& p, const Tile& tile, uint32_t k0, Bytes& bytes) {
    HT_UNROLL
    for (uint32_t i = 0; i < kRowsOfLane; ++i) {
      const uint32_t r = i * 32 + hw::lane_index(), row = tile.output(r);
      HT_UNROLL
      for (uint32_t f = 0; f < kFours; ++f) {
        const uint32_t k = k0 + f * 4 * Stages::kSlotDepth;
        bytes.word[i][f] = 0;
        if (row >= p.n || k >= p.k) continue;
        bytes.word[i][f] = hw::load_global(
            reinterpret_cast<const uint32_t*>(scale_address(p.weight, tile.source_of(r), row, k)));
      }
    }
  }
  HT_DEVICE static void store(const Bytes& bytes, hw::SharedAddress table) {
    HT_UNROLL
    for (uint32_t i = 0; i < kRowsOfLane; ++i) {
      const hw::SharedAddress row = table + (i * 32 + hw::lane_index()) * Stages::kTableRow;
      uint32_t pairs[Stages::kSlots];
      multipliers(bytes.word[i], pairs);
      HT_UNROLL
      for (uint32_t s = 0; s < Stages::kSlots; s += 4) {
        hw::store_shared(row + s * 4,
                         hw::Words4{{pairs[s], pairs[s + 1], pairs[s + 2], pairs[s + 3]}});
      }
    }
  }
  // Scales as pairs of bf16, without branches: a warp that takes them holds the others up.
  HT_DEVICE static void multipliers(const uint32_t (&words)[kFours > 0 ? kFours : 1],
                                    uint32_t (&pairs)[Stages::kSlots]) {
    if constexpr (kScales == Sm90Scales::pairs) {
      HT_UNROLL
      for (uint32_t w = 0; w < kFours; w += 2) {
        uint32_t eight[8];
        Policy::pairs_of({words[w], words[w + 1]}, eight);
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) pairs[w * 4 + i] = eight[i];
      }
    } else {
      // 2^(code - 127); 0 is subnormal, 255 NaN: both have the upper bit of the mantissa.
      HT_UNROLL
      for (uint32_t i = 0; i < Stages::kSlots; ++i) {
        const uint32_t code = words[i / 4] >> 8 * (i % 4) & 0xff;
        pairs[i] = twice(code << 7 | (code - 1 < 254 ? 0 : 0x40));
      }
    }
  }

  // Of sums: where the scales and zero points of the lane's rows begin, and those of its columns.
  struct Rows {
    const uint8_t* scale[kRowsOfLane];
    const uint8_t* zero[kRowsOfLane];
    const float* x[kColumns / 32];
  };
  HT_DEVICE static Rows rows_of(const Sm90Params& params, const Tile& tile) {
    const GpuProduct& p = params.product;
    Rows rows{};
    const bool one = params.factors == Sm90Factors::columns;
    if (one && p.scaled) rows.scale[0] = scale_address(p.weight, tile.source[0], tile.n0, 0);
    HT_UNROLL
    for (uint32_t i = 0; i < kRowsOfLane; ++i) {
      const uint32_t r = i * 32 + hw::lane_index(), row = tile.output(r);
      if (row >= p.n) continue;
      const GpuSource source = tile.source_of(r);
      if (!one && p.scaled) rows.scale[i] = scale_address(p.weight, source, row, 0);
      if (Stages::kZeros && source.zeros != nullptr) {
        const int64_t of_tensor = source.first_row + row * p.weight.row_step;
        const int64_t block = p.weight.block_rows > 0 ? of_tensor / p.weight.block_rows : 0;
        rows.zero[i] = source.zeros + block * p.weight.zero_row;
      }
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kColumns / 32; ++i) {
      const uint32_t m = tile.m0 + i * 32 + hw::lane_index();
      if (p.x_scales != nullptr && m < tile.end)
        rows.x[i] = p.x_scales + int64_t{m} * p.x_scale_row;
    }
    return rows;
  }

  // Beyond the last column the codes are zeros, but their sums are those of the columns before in
  // the same group: the scale is the last one.
  HT_DEVICE static uint32_t group_of(const GpuProduct& p, uint32_t group, uint32_t k) {
    return group > 0 ? (k < p.k ? k : p.k - 1) / group : 0;
  }

  // The scales of a stage, loaded before it is free and written after that.
  struct Raw {
    uint32_t scale[kRowsOfLane][Stages::kSlots];
    float x[Stages::kSlots][kColumns / 32];
  };
  // All loads without waiting; by the bytes of a scale outside the loops.
  HT_DEVICE static void load(const GpuProduct& p, const Rows& rows, uint32_t k0, Raw& raw) {
    uint32_t group[Stages::kSlots];
    HT_UNROLL
    for (uint32_t s = 0; s < Stages::kSlots; ++s) {
      group[s] = group_of(p, p.weight.group, k0 + s * Stages::kSlotDepth);
    }
    const auto scales = [&](auto type) {
      HT_UNROLL
      for (uint32_t i = 0; i < kRowsOfLane; ++i) {
        HT_UNROLL
        for (uint32_t s = 0; s < Stages::kSlots; ++s) {
          const auto* from = reinterpret_cast<const decltype(type)*>(
              rows.scale[i] + group[s] * p.weight.scale_step);
          raw.scale[i][s] = rows.scale[i] != nullptr ? hw::load_global(from) : 0;
        }
      }
    };
    const uint32_t bytes = scale_bytes(p.weight.scale_format);
    if (bytes == 4) {
      scales(uint32_t{});
    } else if (bytes == 2) {
      scales(uint16_t{});
    } else {
      scales(uint8_t{});
    }
    HT_UNROLL
    for (uint32_t s = 0; s < Stages::kSlots; ++s) {
      const uint32_t of_x = group_of(p, p.x_group, k0 + s * Stages::kSlotDepth);
      HT_UNROLL
      for (uint32_t i = 0; i < kColumns / 32; ++i) {
        raw.x[s][i] = rows.x[i] != nullptr ? hw::load_global(rows.x[i] + of_x) : 0;
      }
    }
  }

  // What the scales of a stage stand for; by their format outside the loops.
  HT_DEVICE static void decode(const GpuProduct& p, const Raw& raw,
                               float (&scale)[kRowsOfLane][Stages::kSlots]) {
    const auto each = [&](const auto& value) {
      HT_UNROLL
      for (uint32_t i = 0; i < kRowsOfLane; ++i) {
        HT_UNROLL
        for (uint32_t s = 0; s < Stages::kSlots; ++s) scale[i][s] = value(raw.scale[i][s]);
      }
    };
    const Format format = p.weight.scale_format;
    if (!p.scaled) {
      each([](uint32_t) { return 1.0f; });
    } else if (format == Format::f32) {
      each([](uint32_t code) { return std::bit_cast<float>(code); });
    } else if (format == Format::bf16) {
      each([](uint32_t code) { return std::bit_cast<float>(code << 16); });
    } else if (format == Format::f16) {
      each([](uint32_t code) { return hw::cvt_f32_f16(static_cast<uint16_t>(code)); });
    } else {
      each([&](uint32_t code) { return decode_scale(format, code); });
    }
  }

  // Zero points are loaded only here: few weights have them, and their registers are missing.
  HT_DEVICE static void store(const Sm90Params& params, const Rows& rows, uint32_t k0,
                              const Raw& raw, hw::SharedAddress table) {
    const uint32_t lane = hw::lane_index();
    float scale[kRowsOfLane][Stages::kSlots];
    decode(params.product, raw, scale);
    HT_UNROLL
    for (uint32_t i = 0; i < kRowsOfLane; ++i) {
      const hw::SharedAddress at = table + (i * 32 + lane) * Stages::kTableRow;
      if (params.factors != Sm90Factors::columns) {
        hw::Vector<float, Stages::kSlots> scales;
        HT_UNROLL
        for (uint32_t s = 0; s < Stages::kSlots; ++s) scales[s] = scale[i][s];
        hw::store_shared(at, scales);
      }
      if constexpr (Stages::kZeros) {
        hw::Words4 zeros;
        HT_UNROLL
        for (uint32_t s = 0; s < Stages::kSlots; ++s) zeros[s] = kInt4Zero;
        if (rows.zero[i] != nullptr) {
          const GpuProduct& p = params.product;
          HT_UNROLL
          for (uint32_t s = 0; s < Stages::kSlots; ++s) {
            const uint32_t group = group_of(p, p.weight.group, k0 + s * Stages::kSlotDepth);
            zeros[s] = hw::load_global(rows.zero[i] + group * p.weight.zero_step);
          }
        }
        HT_UNROLL
        for (uint32_t s = 0; s < Stages::kSlots; ++s) zeros[s] = Policy::pair_of(zeros[s]);
        hw::store_shared(at + Stages::kSlots * 4, zeros);
      }
    }
    if (params.factors == Sm90Factors::rows) return;
    HT_UNROLL
    for (uint32_t s = 0; s < Stages::kSlots; ++s) {
      const float of_rows = params.factors == Sm90Factors::columns ? scale[0][s] : 1.0f;
      HT_UNROLL
      for (uint32_t i = 0; i < kColumns / 32; ++i) {
        const uint32_t place = s * kColumns + Stages::x_place(i * 32 + lane);
        hw::store_shared(table + (Stages::kXScales + place * 4), of_rows * raw.x[s][i]);
      }
    }
  }
};

}  // namespace halftone::product

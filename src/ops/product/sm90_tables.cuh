// What multiplies the codes of a stage of W, or their sums: made by three warps beside the one that
// starts the copies, which take turns at the stages.
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
      HT_UNROLL
      for (uint32_t f = 0; f < kFours; ++f) {
        hw::Words4 pairs;
        multipliers(bytes.word[i][f], pairs);
        hw::store_shared(row + f * 16, pairs);
      }
    }
  }

  // Of four scales pairs of bf16, without branches: a warp that takes them holds the others up.
  HT_DEVICE static void multipliers(uint32_t four, hw::Words4& pairs) {
    if constexpr (kScales == Sm90Scales::pairs) {
      uint32_t values[1][4];
      CodePolicy<GpuCode::e4m3>::expand({four, 0}, 0, values);
      constexpr uint32_t kLeft = 0x7a807a80;  // 2^118, as Policy::pair_of has it
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t two = fma_bf16x2(values[0][i], kLeft, kMinusZeros);
        pairs[2 * i] = hw::prmt(two, two, 0x1010), pairs[2 * i + 1] = hw::prmt(two, two, 0x3232);
      }
    } else {
      // 2^(code - 127); 0 is subnormal, 255 NaN: both have the upper bit of the mantissa.
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t code = four >> 8 * i & 0xff;
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
  HT_DEVICE static Rows rows_of(const GpuProduct& p, const Tile& tile) {
    Rows rows{};
    HT_UNROLL
    for (uint32_t i = 0; i < kRowsOfLane; ++i) {
      const uint32_t r = i * 32 + hw::lane_index(), row = tile.output(r);
      if (row >= p.n) continue;
      const GpuSource source = tile.source_of(r);
      if (p.scaled) rows.scale[i] = scale_address(p.weight, source, row, 0);
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
  HT_DEVICE static void store_sums(const GpuProduct& p, const Rows& rows, uint32_t k0,
                                   hw::SharedAddress table) {
    // Beyond the last column the codes are zeros, but their sums are those of the columns before
    // in the same group: the scale is the last one.
    uint32_t group[Stages::kSlots], x_group[Stages::kSlots];
    HT_UNROLL
    for (uint32_t s = 0; s < Stages::kSlots; ++s) {
      const uint32_t k = k0 + s * Stages::kSlotDepth, column = k < p.k ? k : p.k - 1;
      group[s] = p.weight.group > 0 ? column / p.weight.group : 0;
      x_group[s] = p.x_group > 0 ? column / p.x_group : 0;
    }
    // All loads first, then what waits for them; by the bytes of a scale, outside the loops.
    uint32_t raw[kRowsOfLane][Stages::kSlots] = {};
    const auto load = [&](auto kind) {
      HT_UNROLL
      for (uint32_t i = 0; i < kRowsOfLane; ++i) {
        HT_UNROLL
        for (uint32_t s = 0; s < Stages::kSlots; ++s) {
          const auto* from = reinterpret_cast<const decltype(kind)*>(
              rows.scale[i] + group[s] * p.weight.scale_step);
          if (rows.scale[i] != nullptr) raw[i][s] = hw::load_global(from);
        }
      }
    };
    const Format format = p.weight.scale_format;
    if (format == Format::f32) {
      load(uint32_t{});
    } else if (format == Format::f16 || format == Format::bf16) {
      load(uint16_t{});
    } else {
      load(uint8_t{});
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kRowsOfLane; ++i) {
      const hw::SharedAddress at = table + (i * 32 + hw::lane_index()) * Stages::kTableRow;
      hw::Vector<float, Stages::kSlots> scales;
      HT_UNROLL
      for (uint32_t s = 0; s < Stages::kSlots; ++s) {
        scales[s] = p.scaled ? decode_scale(format, raw[i][s]) : 1.0f;
      }
      hw::store_shared(at, scales);
      if constexpr (Stages::kZeros) {
        hw::Words4 zeros;
        HT_UNROLL
        for (uint32_t s = 0; s < Stages::kSlots; ++s) {
          zeros[s] = kInt4Zero;
          const uint8_t* from = rows.zero[i] + group[s] * p.weight.zero_step;
          if (rows.zero[i] != nullptr) zeros[s] = hw::load_global(from);
        }
        HT_UNROLL
        for (uint32_t s = 0; s < Stages::kSlots; ++s) zeros[s] = Policy::pair_of(zeros[s]);
        hw::store_shared(at + Stages::kSlots * 4, zeros);
      }
    }
    if (p.x_scales == nullptr) return;
    HT_UNROLL
    for (uint32_t s = 0; s < Stages::kXSteps; ++s) {
      HT_UNROLL
      for (uint32_t i = 0; i < kColumns / 32; ++i) {
        const uint32_t column = i * 32 + hw::lane_index();
        hw::store_shared(table + (Stages::kXScales + (s * kColumns + column) * 4),
                         rows.x[i] != nullptr ? hw::load_global(rows.x[i] + x_group[s]) : 0.0f);
      }
    }
  }
};

}  // namespace halftone::product

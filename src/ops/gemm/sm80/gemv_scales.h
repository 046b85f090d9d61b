// Scale staging of the general GEMV loop: double-buffered scale tables in shared memory, each of a
// warp's 16 rows of W and of the columns of x, for one span. Scales are loaded before a span is
// computed and stored after it; two lanes share a row of W, each half a span.
#pragma once
#include "ops/gemm/sm80/tile_work.h"

namespace halftone::gemm {

template <GpuCode kCode, uint32_t kTilesM>
struct GpuGemvScales {
  using Policy = CodePolicy<kCode>;
  static constexpr uint32_t kRows = 16, kColumns = 8 * kTilesM;
  static constexpr uint32_t kSpan = 128;  // bytes of a row of W
  static constexpr uint32_t kDepth = kSpan * 8 / Policy::kBits, kChunks = kDepth / 32;

  // Entries of a lane: of 16 elements each where scales multiply weights in pairs, else of a chunk.
  // The second half of a table is 16 banks further, so that the two lanes of a row write to
  // different ones.
  static constexpr bool kQuantised = Policy::kBits <= 8;
  static constexpr uint32_t kPairEntries = Policy::kPairExtent == 16   ? kChunks
                                           : Policy::kPairExtent == 32 ? kChunks / 2
                                                                       : 0;
  static constexpr uint32_t kScaleEntries = kQuantised ? kChunks / 2 : 0;
  static constexpr uint32_t bytes_of(uint32_t entries) {
    return entries > 0 ? (2 * entries + 1) * kRows * 4 : 0;
  }
  // E2M1 has either; INT4 zero points and scales.
  static constexpr bool kEither = kCode == GpuCode::e2m1;
  static constexpr uint32_t kScaleTable = kEither ? 0 : bytes_of(kPairEntries);
  static constexpr uint32_t kXTable =
      kEither ? bytes_of(kPairEntries) : kScaleTable + bytes_of(kScaleEntries);
  static constexpr uint32_t kXEntries = (kChunks * kColumns + 31) / 32;
  static constexpr uint32_t kTableBytes = kXTable + kChunks * kColumns * 4;

  template <uint32_t kEntries>
  HT_HOST_DEVICE static uint32_t place(uint32_t slot, uint32_t row) {
    return ((slot / kEntries + slot) * kRows + row) * 4;
  }

  // How the scales of a lane's half of a span lie: as consecutive bytes, as a single one, or
  // scattered.
  enum class Layout : uint8_t { contiguous, single, scattered };
  template <uint32_t kEntries>
  struct Loaded {
    Layout layout = Layout::scattered;
    uint32_t words[kEntries > 0 ? kEntries : 1] = {};
  };
  Loaded<kScaleEntries> scales;
  Loaded<kPairEntries> pairs;
  float x[kXEntries] = {};

  // Scales at column k of the lane's row, kEntries of them, `step` elements each.
  template <uint32_t kEntries>
  HT_DEVICE static void load_scales(const GpuGemm& p, const GpuSource& s, uint32_t row, uint32_t k,
                                    uint32_t step, Loaded<kEntries>& to) {
    const GpuLayout& l = p.weight;
    const uint32_t reach = kEntries * step;
    // Beyond the last column the weights are zeros, but their accumulator is that of the columns
    // before in the same group: the scale is the last one.
    const uint32_t first = k < p.k ? k : p.k - 1;
    const uint8_t* at = scale_address(l, s, row, first);
    if (l.group % reach == 0) {
      to.layout = Layout::single;
      to.words[0] = load_scale(l.scale_format, at);
      return;
    }
    const uint32_t size = scale_bytes(l.scale_format);
    if (l.group == step && l.scales == ScaleLayout::linear && l.scale_step == size &&
        k + reach <= p.k && reinterpret_cast<uintptr_t>(at) % (kEntries * size) == 0) {
      to.layout = Layout::contiguous;
      load_run(at, kEntries * size, to);
      return;
    }
    to.layout = Layout::scattered;
    HT_ROLLED
    for (uint32_t i = 0; i < kEntries; ++i) {
      const uint32_t column = k + i * step < p.k ? k + i * step : p.k - 1;
      to.words[i] = load_scale(l.scale_format, scale_address(l, s, row, column));
    }
  }
  template <uint32_t kEntries>
  HT_DEVICE static void load_run(const uint8_t* at, uint32_t bytes, Loaded<kEntries>& to,
                                 hw::Site site = hw::Site::current()) {
    if (bytes == 1) to.words[0] = hw::load_global(at, site);
    if (bytes == 2) to.words[0] = hw::load_global(reinterpret_cast<const uint16_t*>(at), site);
    if (bytes == 4) to.words[0] = hw::load_global(reinterpret_cast<const uint32_t*>(at), site);
    if constexpr (kEntries >= 2) {
      if (bytes == 8) {
        const auto words =
            hw::load_global(reinterpret_cast<const hw::Vector<uint32_t, 2>*>(at), site);
        to.words[0] = words[0], to.words[1] = words[1];
      }
    }
    if constexpr (kEntries >= 4) {
      if (bytes == 16) {
        const auto words = hw::load_global(reinterpret_cast<const hw::Words4*>(at), site);
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) to.words[i] = words[i];
      }
    }
  }
  // Entry i of what was loaded.
  template <uint32_t kEntries>
  HT_DEVICE static uint32_t entry_of(const Loaded<kEntries>& from, uint32_t size, uint32_t i) {
    if (from.layout == Layout::single) return from.words[0];
    if (from.layout == Layout::scattered || size == 4) return from.words[i];
    return size == 1 ? from.words[i / 4] >> 8 * (i % 4) & 0xff
                     : from.words[i / 2] >> 16 * (i % 2) & 0xffff;
  }

  HT_DEVICE void load(const GpuGemm& p, const GpuTask& task, const GpuSource& s, uint32_t row,
                      uint32_t k0) {
    const uint32_t lane = hw::lane_index(), k = k0 + lane % 2 * (kDepth / 2);
    if constexpr (kPairEntries > 0) {
      if constexpr (kCode == GpuCode::int4) {
        if (s.zeros != nullptr) {
          HT_ROLLED
          for (uint32_t i = 0; i < kPairEntries; ++i) {
            const uint32_t column = k + i * 32 < p.k ? k + i * 32 : p.k - 1;
            pairs.words[i] = zero_of(p.weight, s, row, column);
          }
        }
      } else {
        if (p.pairs) load_scales(p, s, row, k, 16, pairs);
      }
    }
    if constexpr (kScaleEntries > 0) {
      if (p.scaled) load_scales(p, s, row, k, 32, scales);
    }
    load_x(p, task, k0);
  }
  HT_DEVICE void load_x(const GpuGemm& p, const GpuTask& task, uint32_t k0) {
    const uint32_t lane = hw::lane_index();
    if (p.x_scales == nullptr) return;
    HT_UNROLL
    for (uint32_t i = 0; i < kXEntries; ++i) {
      const uint32_t at = i * 32 + lane, chunk = at / kColumns, column = at % kColumns;
      const uint32_t kx = k0 + chunk * 32 < p.k ? k0 + chunk * 32 : p.k - 1;
      const bool exists = column < task.rows * p.terms && chunk < kChunks;
      x[i] = exists ? hw::load_global(p.x_scales +
                                      x_row_of(p, task, column / p.terms) * p.x_scale_row +
                                      kx / p.x_group)
                    : 0;
    }
  }

  HT_DEVICE void store(const GpuGemm& p, const GpuSource& s, hw::SharedAddress table) const {
    const uint32_t lane = hw::lane_index(), row = lane / 2, half = lane % 2;
    const uint32_t size = scale_bytes(p.weight.scale_format);
    if constexpr (kPairEntries > 0) {
      const auto put = [&](uint32_t i, uint32_t pair) {
        hw::store_shared(table + place<kPairEntries>(half * kPairEntries + i, row), pair);
      };
      if constexpr (kCode == GpuCode::int4) {
        if (s.zeros != nullptr) {
          HT_UNROLL
          for (uint32_t i = 0; i < kPairEntries; ++i) put(i, Policy::pair_of(pairs.words[i]));
        }
      } else if (p.pairs && pairs.layout == Layout::contiguous) {
        uint32_t each[kPairEntries];
        Policy::pairs_of({pairs.words[0], pairs.words[1]}, each);
        HT_UNROLL
        for (uint32_t i = 0; i < kPairEntries; ++i) put(i, each[i]);
      } else if (p.pairs) {
        HT_ROLLED
        for (uint32_t i = 0; i < kPairEntries; ++i) {
          put(i, Policy::pair_of(decode_scale(p.weight.scale_format, entry_of(pairs, size, i))));
        }
      }
    }
    if constexpr (kScaleEntries > 0) {
      if (p.scaled) {
        HT_ROLLED
        for (uint32_t i = 0; i < kScaleEntries; ++i) {
          hw::store_shared(
              table + (kScaleTable + place<kScaleEntries>(half * kScaleEntries + i, row)),
              decode_scale(p.weight.scale_format, entry_of(scales, size, i)));
        }
      }
    }
    store_x(p, table);
  }
  HT_DEVICE void store_x(const GpuGemm& p, hw::SharedAddress table) const {
    const uint32_t lane = hw::lane_index();
    if (p.x_scales == nullptr) return;
    HT_UNROLL
    for (uint32_t i = 0; i < kXEntries; ++i) {
      if ((i * 32 + lane) / kColumns < kChunks) {
        hw::store_shared(table + (kXTable + (i * 32 + lane) * 4), x[i]);
      }
    }
  }
};

}  // namespace halftone::gemm

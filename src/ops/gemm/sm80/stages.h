// The shared memory of the tiled GEMM from sm_80 on: a cp.async ring of stages of packed W and x,
// and double-buffered scale tables, one of the stage in use and one of the next.
#pragma once
#include "ops/gemm/sm80/tile_work.h"

namespace halftone::gemm {

template <GpuCode kCode, GpuTile kTile>
struct GpuStages {
  using Policy = CodePolicy<kCode>;
  static constexpr uint32_t kRows = kTile.rows, kColumns = kTile.columns;
  static constexpr uint32_t kWarps = kTile.warps_n * kTile.warps_m;
  static constexpr uint32_t kThreads = kWarps * 32;
  // Elements of K of a stage: few, so that tiles fit.
  static constexpr uint32_t kDepth = 64, kChunks = kDepth / 32;
  static constexpr uint32_t kOctet = Policy::kBits;  // bytes
  static constexpr uint32_t kRowBytes = kDepth * Policy::kBits / 8, kXRowBytes = kDepth * 2;
  static constexpr uint32_t kStageBytes = kRows * kRowBytes + kColumns * kXRowBytes;

  // The scale tables: of W's rows [slot][row], padded so that neighbouring slots fall into other
  // banks; of x's columns [chunk][column].
  static constexpr uint32_t kScaleTableRow = kRows % 32 == 0 ? kRows + 16 : kRows;
  static constexpr uint32_t kPairSlots = Policy::kPairExtent == 16   ? kDepth / 16
                                         : Policy::kPairExtent == 32 ? kChunks
                                                                     : 0;
  static constexpr bool kQuantised = Policy::kBits <= 8;
  static constexpr uint32_t kScaleSlots = kQuantised ? kChunks : 0;
  static constexpr uint32_t kPairBytes = kPairSlots * kScaleTableRow * 4;
  static constexpr uint32_t kScaleBytes = kScaleSlots * kScaleTableRow * 4;
  static constexpr uint32_t kXScaleBytes = kChunks * kColumns * 4;
  static constexpr uint32_t kScaleTableBytes = kPairBytes + kScaleBytes + kXScaleBytes;

  static constexpr uint32_t kFittingStages = (kTile.bytes - 2 * kScaleTableBytes) / kStageBytes;
  static constexpr uint32_t kStages = kFittingStages < kTile.stages ? kFittingStages : kTile.stages;
  static_assert(kStages >= 2, "one stage is read while another is filled");
  static constexpr uint32_t kScaleTables = kStages * kStageBytes;
  static constexpr uint32_t kUsed = kScaleTables + 2 * kScaleTableBytes;

  HT_HOST_DEVICE static uint32_t w_offset(uint32_t row, uint32_t chunk) {
    return swizzled<kOctet, kRowBytes>(row, chunk);
  }
  HT_HOST_DEVICE static uint32_t x_offset(uint32_t row, uint32_t chunk) {
    return swizzled<16, kXRowBytes>(row, chunk);
  }

  // Columns that x does not have stay zero.
  HT_DEVICE static void clear(const GpuGemm& p, const GpuTask& task) {
    const uint32_t first = task.rows * p.terms * kXRowBytes / 16;
    constexpr uint32_t kPieces = kColumns * kXRowBytes / 16;
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      for (uint32_t i = first + hw::thread_index().x; i < kPieces; i += kThreads) {
        hw::store_shared(task.base + (stage * kStageBytes + kRows * kRowBytes + i * 16),
                         hw::Words4{});
      }
    }
  }

  HT_DEVICE static void fill(const GpuGemm& p, const GpuTask& task, uint32_t step) {
    const uint32_t thread = hw::thread_index().x, k0 = step * kDepth;
    const hw::SharedAddress to = task.base + step % kStages * kStageBytes;
    constexpr uint32_t kPieces = kRowBytes / 16, kXPieces = kXRowBytes / 16;
    for (uint32_t i = thread; i < kRows * kPieces; i += kThreads) {
      const uint32_t r = i / kPieces, piece = i % kPieces;
      const uint32_t row = task.output(p.epilogue.gate, r);
      const GpuSource s = task.source_of(p.epilogue.gate, r);
      const hw::SharedAddress at = to + w_offset(r, piece);
      if constexpr (kCode == GpuCode::f32) {
        if (p.dequantise) {
          hw::store_shared(at, dequantised(p, s, row, k0 + piece * 4));
          continue;
        }
      }
      if constexpr (kCode == GpuCode::dequantised) {
        hw::store_shared(at, dequantised_pairs(p, s, row, k0 + piece * 8));
        continue;
      }
      // The bytes of the row from here on; none of a row that does not exist.
      const int64_t offset = int64_t{k0} * Policy::kBits / 8 + piece * 16;
      const int64_t valid = row < p.n ? int64_t{p.k} * Policy::kBits / 8 - offset : 0;
      const uint8_t* from = row_address(p.weight, s, row) + offset;
      copy_chunk(at, valid > 0 ? from : s.data, valid);
    }
    const hw::SharedAddress x_to = to + kRows * kRowBytes;
    for (uint32_t i = thread; i < task.rows * p.terms * kXPieces; i += kThreads) {
      const uint32_t column = i / kXPieces, piece = i % kXPieces;
      const int64_t offset = int64_t{k0} * 2 + piece * 16, valid = int64_t{p.k} * 2 - offset;
      const uint8_t* from =
          p.x + (x_row_of(p, task, column / p.terms) * p.terms + column % p.terms) * p.x_row +
          offset;
      copy_chunk(x_to + x_offset(column, piece), valid > 0 ? from : p.x, valid);
    }
  }

  // The scales of a stage are loaded before the previous one is computed and stored after it.
  static constexpr uint32_t kPairLoads = (kPairSlots * kRows + kThreads - 1) / kThreads;
  static constexpr uint32_t kScaleLoads = (kScaleSlots * kRows + kThreads - 1) / kThreads;
  static constexpr uint32_t kXScaleLoads = (kChunks * kColumns + kThreads - 1) / kThreads;
  struct Scales {
    uint32_t pair[kPairLoads + 1], scale[kScaleLoads + 1];
    float x[kXScaleLoads];
  };
  // Calls f(i, slot, row) for this thread's entries of a table.
  template <uint32_t kSlots, uint32_t kWidth, class F>
  HT_DEVICE static void each_entry(F f) {
    HT_UNROLL
    for (uint32_t i = 0; i < (kSlots * kWidth + kThreads - 1) / kThreads; ++i) {
      const uint32_t entry = i * kThreads + hw::thread_index().x;
      if (entry < kSlots * kWidth) f(i, entry / kWidth, entry % kWidth);
    }
  }
  HT_DEVICE static void load_scales(const GpuGemm& p, const GpuTask& task, uint32_t step,
                                    Scales& scales) {
    const uint32_t k0 = step * kDepth;
    // Beyond the last column the weights are zeros, but their accumulator is that of the columns
    // before in the same group: the scale is the last one.
    const auto within = [&](uint32_t k) { return k < p.k ? k : p.k - 1; };
    const auto load = [&](uint32_t r, uint32_t k, auto from) -> uint32_t {
      const uint32_t row = task.output(p.epilogue.gate, r);
      return row < p.n ? from(task.source_of(p.epilogue.gate, r), row, within(k)) : 0;
    };
    const auto scale = [&](const GpuSource& s, uint32_t row, uint32_t k) {
      return load_scale(p.weight.scale_format, scale_address(p.weight, s, row, k));
    };
    if constexpr (kPairSlots > 0) {
      each_entry<kPairSlots, kRows>([&](uint32_t i, uint32_t slot, uint32_t r) {
        const uint32_t k = k0 + slot * (kDepth / kPairSlots);
        if constexpr (kCode == GpuCode::int4) {
          scales.pair[i] = load(r, k, [&](const GpuSource& s, uint32_t row, uint32_t column) {
            return zero_of(p.weight, s, row, column);
          });
        } else {
          scales.pair[i] = p.pairs ? load(r, k, scale) : 0;
        }
      });
    }
    if constexpr (kScaleSlots > 0) {
      if (p.scaled) {
        each_entry<kScaleSlots, kRows>([&](uint32_t i, uint32_t slot, uint32_t r) {
          scales.scale[i] = load(r, k0 + slot * 32, scale);
        });
      }
    }
    if (p.x_scales == nullptr) return;
    each_entry<kChunks, kColumns>([&](uint32_t i, uint32_t slot, uint32_t column) {
      const uint32_t k = within(k0 + slot * 32);
      const bool exists = column < task.rows * p.terms;
      scales.x[i] = exists ? hw::load_global(p.x_scales +
                                             x_row_of(p, task, column / p.terms) * p.x_scale_row +
                                             k / p.x_group)
                           : 0;
    });
  }
  HT_DEVICE static void store_scales(const GpuGemm& p, const GpuTask& task, uint32_t step,
                                     const Scales& scales) {
    const hw::SharedAddress table = task.base + (kScaleTables + step % 2 * kScaleTableBytes);
    if constexpr (kPairSlots > 0) {
      each_entry<kPairSlots, kRows>([&](uint32_t i, uint32_t slot, uint32_t r) {
        uint32_t pair;
        if constexpr (kCode == GpuCode::int4) {
          pair = Policy::pair_of(scales.pair[i]);
        } else {
          pair = p.pairs ? Policy::pair_of(decode_scale(p.weight.scale_format, scales.pair[i]))
                         : Policy::kUnscaled;
        }
        hw::store_shared(table + (slot * kScaleTableRow + r) * 4, pair);
      });
    }
    if constexpr (kScaleSlots > 0) {
      if (p.scaled) {
        each_entry<kScaleSlots, kRows>([&](uint32_t i, uint32_t slot, uint32_t r) {
          hw::store_shared(table + (kPairBytes + (slot * kScaleTableRow + r) * 4),
                           decode_scale(p.weight.scale_format, scales.scale[i]));
        });
      }
    }
    if (p.x_scales == nullptr) return;
    each_entry<kChunks, kColumns>([&](uint32_t i, uint32_t slot, uint32_t column) {
      hw::store_shared(table + (kPairBytes + kScaleBytes + (slot * kColumns + column) * 4),
                       scales.x[i]);
    });
  }
};

}  // namespace halftone::gemm

// A tile of the GEMMs on sm_90a, 128 rows of W by some rows of x, and the TMA coordinates of its
// rows of W.
#pragma once
#include "hw/copy/tma.h"
#include "ops/gemm/sm90/params.h"

namespace halftone::gemm {

// Rows of W of a tile, unless a kernel says otherwise; bytes of K of a stage.
inline constexpr uint32_t kSm90Rows = 128, kSm90Line = 128;

// 128 rows of W are 128 outputs, or 64 with the up halves of their gates.
struct Sm90Tile {
  GpuSource source[2];
  uint32_t n0, m0, end;  // first output; first row of x, and the end
  uint32_t expert;
  bool gate;

  // Gate and up alternate by 32 rows, so that each warpgroup has both.
  HT_DEVICE uint32_t output(uint32_t r) const { return n0 + (gate ? r / 64 * 32 + r % 32 : r); }
  HT_DEVICE uint32_t half_of(uint32_t r) const { return gate ? r / 32 % 2 : 0; }
  // W is evict-first in the L2 where no further rows of x read it again. In a grouped GEMM only a
  // chunk that is not full shows that it is the expert's last.
  HT_DEVICE hw::CachePolicy weight_policy(const Sm90Params& params, uint32_t columns) const {
    const uint32_t rows = end - m0;
    const bool last =
        params.max_chunks == 0 ? end == params.gemm.m && rows <= columns : rows < columns;
    return {last ? hw::kEvictFirst.bits : hw::kEvictNormal.bits};
  }
  // By value: a reference to one of two would be an address in local memory.
  HT_DEVICE GpuSource source_of(uint32_t r) const {
    GpuSource s = source[0];
    if (half_of(r) != 0) s = source[1];
    return s;
  }
};

// The tile with index `w` along W and `x` along x, `columns` rows high; in a grouped GEMM `x` is
// the index of an M-chunk.
template <uint32_t kRows = kSm90Rows>
HT_DEVICE Sm90Tile sm90_tile(const Sm90Params& params, uint32_t w, uint32_t x, uint32_t columns) {
  const GpuGemm& p = params.gemm;
  const bool gate = p.epilogue.gate;
  const uint32_t n0 = w * (gate ? kRows / 2 : kRows), m0 = x * columns;
  if (params.max_chunks == 0) return {{p.source[0], p.source[1]}, n0, m0, p.m, 0, gate};
  const auto chunk = hw::load_global(p.chunks + x);
  const GpuSource* source = p.experts + chunk.expert * p.expert_step;
  const auto first = static_cast<uint32_t>(chunk.first);
  return {{load_source(source), load_source(source + (gate ? 1 : 0))},
          n0,
          first,
          first + static_cast<uint32_t>(chunk.count),
          static_cast<uint32_t>(chunk.expert),
          gate};
}

// Where the matrices of a tile, gate and up, are in the tensor map of W.
struct Sm90MapCoords {
  int32_t at[2];

  HT_DEVICE Sm90MapCoords(const Sm90Params& p, const Sm90Tile& tile) {
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint8_t* first = row_address(p.gemm.weight, tile.source[half], 0);
      at[half] = static_cast<int32_t>((first - p.w_first) >> p.w_shift);
    }
  }
  // Loads one stage of W, stored as [N, K].
  template <uint32_t kRows = kSm90Rows>
  HT_DEVICE void load(const Sm90Params& p, const Sm90Tile& tile, uint32_t step,
                      hw::SharedAddress to, hw::Mbarrier full, hw::CachePolicy policy) const {
    const auto byte = static_cast<int32_t>(step * kSm90Line);
    for (uint32_t r = 0; r < kRows; r += p.w_rows) {
      hw::tensor_load(
          to + r * kSm90Line, &p.w,
          {byte, static_cast<int32_t>(tile.output(r)), tile.half_of(r) == 0 ? at[0] : at[1]}, full,
          policy);
    }
  }
};

}  // namespace halftone::gemm

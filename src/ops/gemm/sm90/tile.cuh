// A tile of a product on Hopper, 128 rows of W by some rows of x, and the copies of its rows of W.
#pragma once
#include "hw/copy/tma.h"
#include "ops/gemm/sm90/params.h"

namespace halftone::gemm {

// Of W a tile, but where a kernel says otherwise; bytes of K a stage.
inline constexpr uint32_t kSm90Rows = 128, kSm90Line = 128;

// 128 rows of W are 128 outputs, or 64 with the other halves of their gates.
struct Sm90Tile {
  GpuSource source[2];
  uint32_t n0, m0, end;  // first output; first row of x, and the one after the last
  uint32_t expert;
  bool gate;

  // Gates and their other halves alternate by 32 rows, so that each warpgroup has both.
  HT_DEVICE uint32_t output(uint32_t r) const { return n0 + (gate ? r / 64 * 32 + r % 32 : r); }
  HT_DEVICE uint32_t half_of(uint32_t r) const { return gate ? r / 32 % 2 : 0; }
  // W passes through the L2 once where no rows of x follow these, and leaves first what others read
  // again. Of experts only a part that is not full says that it is the last.
  HT_DEVICE hw::CachePolicy weight_policy(const Sm90Params& params, uint32_t columns) const {
    const uint32_t rows = end - m0;
    const bool last =
        params.max_chunks == 0 ? end == params.gemm.m && rows <= columns : rows < columns;
    return {last ? hw::kEvictFirst.bits : hw::kEvictNormal.bits};
  }
  // A copy, as a reference to one of two would be an address of local memory.
  HT_DEVICE GpuSource source_of(uint32_t r) const {
    GpuSource s = source[0];
    if (half_of(r) != 0) s = source[1];
    return s;
  }
};

// The tile of W's rows `w` by x's rows `x`, both in tiles of their own, those of x `columns` high:
// of experts x counts the parts of the list.
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

// Where the matrices of a tile, that of the gate and that of its other half, lie in the map of W.
struct Sm90MapCoords {
  int32_t at[2];

  HT_DEVICE Sm90MapCoords(const Sm90Params& p, const Sm90Tile& tile) {
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint8_t* first = row_address(p.gemm.weight, tile.source[half], 0);
      at[half] = static_cast<int32_t>((first - p.w_first) >> p.w_shift);
    }
  }
  // One stage of W as [N, K].
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

// The producers of the grouped small-M GEMMs on sm_90a: TMA copies of stages of W and x by one
// thread, and scales that lie beside them by a warp, tile after tile over the list of M-chunks.
#pragma once
#include "hw/copy/cp_async.h"
#include "hw/copy/tma.h"
#include "hw/griddep.h"
#include "ops/gemm/sm90/small_m/grouped_params.h"
#include "ops/gemm/sm90/tile_list.cuh"

namespace halftone::gemm {

template <class Stages>
struct Sm90GroupedCopies {
  using Params = Sm90GroupedSmallMParams;
  using Ring = typename Stages::Ring;
  // Arrivals that fill a stage.
  static constexpr uint32_t kProducers = Stages::kSmemScales ? 33 : 1;

  const Params& params;
  hw::SharedAddress base;
  Sm90TileRange range;
  int32_t first_row = 0, matrix[2] = {};  // of the chunk: its first row of x, and the coordinates
                                          // of its matrices in the tensor map
  const uint8_t* scales_at[2] = {};
  hw::CachePolicy policy = hw::kEvictFirst;
  uint32_t step = 0;

  HT_DEVICE Sm90GroupedCopies(const Params& all, hw::SharedAddress shared)
      : params(all), base(shared), range(all.gemm, all.tiles) {
    enter();
  }
  HT_DEVICE void enter() {
    if (range.left == 0 || !range.new_chunk) return;
    const GpuLayout& weight = params.gemm.weight;
    Sm90MChunk chunk;
    chunk.load(params.gemm, range.chunk);
    first_row = chunk.rows.first;
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      matrix[half] = chunk.matrix(weight, half, params.w_first, params.w_shift);
      if constexpr (Stages::kSmemScales) {
        scales_at[half] = scale_address(weight, chunk.source[half], 0, 0);
      }
    }
    policy = chunk.weight_policy(params.gemm);
  }
  HT_DEVICE bool any() const { return range.left > 0; }
  HT_DEVICE void next() {
    if (++step < params.steps) return;
    step = 0;
    range.next();
    enter();
  }
  // Of 32 rows of the tile: the first output, and whether they belong to the up half of a gate.
  HT_DEVICE uint32_t output(uint32_t run32) const {
    return params.gemm.epilogue.gate ? range.tile * 64 + run32 / 2 * 32
                                     : range.tile * 128 + run32 * 32;
  }
  HT_DEVICE bool is_up(uint32_t run32) const { return params.gemm.epilogue.gate && run32 % 2 == 1; }

  // By one thread.
  HT_DEVICE void weights(const pipe::Slot& slot) const {
    const hw::SharedAddress to = base + slot.stage * Stages::kBytes;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      HT_UNROLL
      for (uint32_t line = 0; line < Stages::kLines; ++line) {
        hw::tensor_load(to + (i * Stages::kLines + line) * 32 * Stages::kLine, &params.w,
                        {static_cast<int32_t>((step * Stages::kLines + line) * Stages::kLine),
                         static_cast<int32_t>(output(i)), is_up(i) ? matrix[1] : matrix[0]},
                        slot.full, policy);
      }
    }
  }
  HT_DEVICE void rows(const pipe::Slot& slot) const {
    hw::tensor_load(base + (slot.stage * Stages::kBytes + Stages::kX), &params.x,
                    {0, first_row, static_cast<int32_t>(step * (Stages::kDepth / 64))}, slot.full);
  }

  // Scales of row `r` of 32, from byte `at` of the row on.
  HT_DEVICE const uint8_t* scales_of(uint32_t run32, uint32_t r, uint32_t at) const {
    const uint32_t last = params.gemm.n - 1, row = output(run32) + r;
    return (is_up(run32) ? scales_at[1] : scales_at[0]) +
           uint64_t{row < last ? row : last} * params.scale_pitch + at;
  }
  // By a warp. Scales beyond the end of a row are filled with zeros.
  template <uint32_t kBytes>
  HT_DEVICE void copy_scales(const pipe::Slot& slot, hw::Site site = hw::Site::current()) const {
    constexpr uint32_t kPieces = Stages::kScaleBytes / kBytes, kRows = 32 / kPieces;
    const hw::SharedAddress to = base + (slot.stage * Stages::kBytes + Stages::kScaleOffset);
    const uint32_t lane = hw::lane_index(), piece = lane % kPieces * kBytes;
    const uint32_t at = step * Stages::kScaleBytes + piece;
    const uint32_t left = at < params.scale_bytes ? params.scale_bytes - at : 0;
    HT_UNROLL
    for (uint32_t i = 0; i < Stages::kRows / kRows; ++i) {
      const uint32_t r = i % kPieces * kRows + lane / kPieces;  // of 32
      const uint32_t place = (i / kPieces * 32 + r) * Stages::kScalePitch + piece;
      hw::cp_async_zero_fill<kBytes>(to + place, scales_of(i / kPieces, r, left > 0 ? at : 0),
                                     left < kBytes ? left : kBytes, site);
    }
    hw::cp_async_mbarrier_arrive_noinc(slot.full, site);
  }

  // Scales whose rows start at any even byte pass through registers: eight bytes a row, four rows a
  // lane, whose addresses are computed once a tile.
  struct Halfwords {
    static constexpr uint32_t kRows = 4;
    const uint8_t* row[kRows];
    hw::Vector<uint32_t, 2> words[kRows];

    HT_DEVICE void prefetch(const Sm90GroupedCopies& c, hw::Site site = hw::Site::current()) {
      if (c.step == 0) {
        HT_UNROLL
        for (uint32_t i = 0; i < kRows; ++i) row[i] = c.scales_of(i, hw::lane_index(), 0);
      }
      const uint32_t at = c.step * 8, left = c.params.scale_bytes - at;
      if (left >= 8) {
        load<4>(at, site);
      } else if (left == 6) {
        load<3>(at, site);
      } else if (left == 4) {
        load<2>(at, site);
      } else {
        load<1>(at, site);
      }
    }
    template <uint32_t kHalfwords>
    HT_DEVICE void load(uint32_t at, hw::Site site) {
      HT_UNROLL
      for (uint32_t i = 0; i < kRows; ++i) {
        const auto* from = reinterpret_cast<const uint16_t*>(row[i] + at);
        uint32_t two[4] = {};
        HT_UNROLL
        for (uint32_t j = 0; j < kHalfwords; ++j) two[j] = hw::load_global(from + j, site);
        words[i] = {{two[0] | two[1] << 16, two[2] | two[3] << 16}};
      }
    }
    HT_DEVICE void store(hw::SharedAddress stage, hw::Site site = hw::Site::current()) const {
      const hw::SharedAddress to = stage + (Stages::kScaleOffset + hw::lane_index() * 8);
      HT_UNROLL
      for (uint32_t i = 0; i < kRows; ++i) hw::store_shared(to + i * 32 * 8, words[i], site);
    }
  };

  // W and x. By one thread: lanes that wait without work could arrive so late that a stage has been
  // filled and released again, and would wait for ever.
  HT_DEVICE static void load_tensors(const Params& params, const Ring& ring,
                                     hw::SharedAddress base) {
    auto fill = ring.producer();
    Sm90GroupedCopies copies(params, base), first = copies;
    // x is read only after griddepcontrol.wait; the weights of the first stages are prefetched
    // before it.
    for (uint32_t s = 0; s < Stages::kStages && copies.any(); ++s) {
      copies.weights(fill.acquire());
      copies.next();
    }
    if (params.gemm.static_weights) hw::griddepcontrol_wait();
    for (uint32_t s = 0; s < Stages::kStages && first.any(); ++s) {
      first.rows({s, ring.full(s)});
      first.next();
    }
    while (copies.any()) {
      const pipe::Slot slot = fill.acquire();
      copies.weights(slot);
      copies.rows(slot);
      copies.next();
    }
  }
  // Scales, by a warp. Each lane arrives on the full barrier for its own copies.
  HT_DEVICE static void load_scales(const Params& params, const Ring& ring,
                                    hw::SharedAddress base) {
    auto fill = ring.producer();
    Sm90GroupedCopies copies(params, base);
    if constexpr (Stages::kScaleBytes == 16) {
      if (params.scales_aligned == 16) {
        for (; copies.any(); copies.next()) copies.template copy_scales<16>(fill.wait());
        return;
      }
    } else if (params.scales_aligned < 4) {
      return load_halfwords(copies, fill);
    }
    for (; copies.any(); copies.next()) copies.template copy_scales<4>(fill.wait());
  }
  HT_DEVICE static void load_halfwords(Sm90GroupedCopies& copies, typename Ring::Producer& fill) {
    Halfwords next;  // loaded a stage ahead
    if (copies.any()) next.prefetch(copies);
    while (copies.any()) {
      const pipe::Slot slot = fill.wait();
      next.store(copies.base + slot.stage * Stages::kBytes);
      hw::mbarrier_arrive(slot.full);
      copies.next();
      if (copies.any()) next.prefetch(copies);
    }
  }
};

}  // namespace halftone::gemm

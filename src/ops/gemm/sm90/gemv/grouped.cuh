// Grouped GEMV on sm_90a: up to four rows of BF16 x per expert by 8- or 4-bit weights, with the
// experts and their rows in a list of M-chunks in device memory.
//
// Like the dense GEMV (gemv/gemv.cuh) it is one stream of TMA copies for persistent CTAs, with
// twelve consumer warps, a producer and an epilogue warp. A CTA takes a contiguous range of the
// tiles of all chunks, so that it seldom changes the chunk: then its warps stage other rows of x,
// while copies go on. A tile is 16 rows of W for each of warps_n warps, and its K is split between
// warps_k warps: how many is a function of K alone, hence the bits of an output are a function of
// its rows of W and x, whatever else is in the chunk or on the list.
#pragma once
#include "hw/copy/tma.h"
#include "hw/griddep.h"
#include "ops/gemm/sm90/gemv/grouped_params.h"
#include "ops/gemm/sm90/gemv/span.cuh"
#include "ops/gemm/sm90/tile_list.cuh"
#include "pipe/named_barrier.h"

namespace halftone::gemm {

template <GpuCode kCode, ScaleMode kScales, ScaleCopy kScaleMode = ScaleCopy::lanes>
struct Sm90GroupedGemv {
  using Params = Sm90GroupedGemvParams;
  using Stages = Sm90GroupedGemvStages<kCode, kScaleMode>;
  using Span = Sm90GemvSpan<kCode, kScales>;
  using Scales = typename Span::Scales;
  using Ring = typename Stages::Ring;
  using SumRing = typename Stages::SumRing;
  static constexpr uint32_t kThreads = Stages::kThreads, kMinBlocks = Stages::kMinBlocks;
  static constexpr uint32_t kWarps = Stages::kWarps, kMaxRows = Stages::kMaxRows;
  static constexpr bool kLines = kScaleMode == ScaleCopy::tensor_lines;
  static constexpr bool kRows = kScaleMode == ScaleCopy::bulk_rows;
  static constexpr bool kLaneScales = kScales != ScaleMode::none && !kLines && !kRows;
  enum class Barrier { mma_warps, count };

  HT_DEVICE static void sync(hw::Site site = hw::Site::current()) {
    pipe::sync<Barrier::mma_warps>(kWarps * 32, site);
  }
  // Of a tile: its outputs, and the first row of W of its second half.
  HT_DEVICE static uint32_t outputs(const Params& p) {
    return p.warps_n * (p.gemm.epilogue.gate ? 8 : 16);
  }
  HT_DEVICE static uint32_t second_half(const Params& p, uint32_t first) {
    return p.gemm.epilogue.gate ? first : first + p.warps_n * 8;
  }

  HT_DEVICE static Sm90TileRange range_of(const Params& params) {
    const GpuGemm& p = params.gemm;
    const uint32_t chunks =
        p.expert_ids != nullptr ? p.expert_id_rows : hw::load_global(p.chunk_count);
    return {chunks, params.tiles};
  }
  HT_DEVICE static void load_chunk(const GpuGemm& p, uint32_t index, Sm90MChunk& chunk) {
    if (p.expert_ids != nullptr) {
      chunk.load_unsorted(p, index);
    } else {
      chunk.load(p, index);
    }
  }

  // Stages that are filled before the first rows of x have been requested: further copies in the
  // memory queues would delay them.
  static constexpr uint32_t kStagesBeforeX = 1;

  HT_DEVICE static void load(const Params& params, const Ring& ring, hw::SharedAddress base) {
    const hw::Mbarrier x_read{base + Stages::kXRead};
    uint32_t filled = 0;
    const GpuGemm& p = params.gemm;
    const uint32_t span_bytes = params.warps_n * 8 * Stages::kSpan;  // of a half
    auto fill = ring.producer();
    Sm90MChunk chunk;
    int32_t matrix[2] = {}, scale_matrix[2] = {};
    uint32_t tiles = 0;
    hw::CachePolicy policy = hw::kEvictFirst;
    for (Sm90TileRange range = range_of(params); range.left > 0; range.next()) {
      if (range.new_chunk) {
        load_chunk(p, range.chunk, chunk);
        HT_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          matrix[half] = chunk.matrix(p.weight, half, params.w_first, params.w_shift);
          if constexpr (kLines) {
            const uint8_t* at = Scales::address(p.weight, 0, chunk.source[half], 0);
            scale_matrix[half] =
                static_cast<int32_t>((at - params.first_scale) >> params.scale_shift);
          }
        }
        policy = chunk.weight_policy(p);
      }
      const uint32_t n0 = range.tile * outputs(params);
      const auto first = static_cast<int32_t>(n0);
      const auto second = static_cast<int32_t>(second_half(params, n0));
      for (uint32_t span = 0; span < params.spans; span += params.warps_k) {
        const uint32_t left = params.spans - span;
        const uint32_t count = left < params.warps_k ? left : params.warps_k;
        if (filled++ == kStagesBeforeX) hw::mbarrier_wait(x_read, 0);
        const pipe::Slot slot = fill.wait();
        uint32_t bytes = count * 2 * span_bytes;
        if constexpr (kLines) bytes += 2 * params.warps_n * 8 * params.warps_k * params.scale_span;
        if constexpr (kRows) bytes += span == 0 ? 2 * params.scale_rows : 0;
        hw::mbarrier_arrive_expect_tx(slot.full, bytes);
        const hw::SharedAddress to = base + slot.stage * Stages::kBytes;
        if constexpr (kLines) {
          const hw::SharedAddress scales = to + 2 * Stages::kHalf;
          const auto byte = static_cast<int32_t>(span * params.scale_span);
          hw::tensor_load(scales, &params.scales, {byte, first, scale_matrix[0]}, slot.full,
                          policy);
          hw::tensor_load(scales + Stages::kScaleHalf, &params.scales,
                          {byte, second, scale_matrix[1]}, slot.full, policy);
        }
        if constexpr (kRows) {
          if (span == 0) load_rows(params, chunk, n0, base, tiles++, slot.full);
        }
        for (uint32_t s = 0; s < count; ++s) {
          const auto byte = static_cast<int32_t>((span + s) * Stages::kSpan);
          hw::tensor_load(to + s * span_bytes, &params.w, {byte, first, matrix[0]}, slot.full,
                          policy);
          hw::tensor_load(to + (Stages::kHalf + s * span_bytes), &params.w,
                          {byte, second, matrix[1]}, slot.full, policy);
        }
      }
    }
  }

  // The scales of the rows of a tile: of a gate and of its up half, which may be interleaved, or of
  // all rows.
  HT_DEVICE static bool interleaved(const Params& p) {
    return p.gemm.epilogue.gate && p.gemm.weight.row_step > 1;
  }
  HT_DEVICE static hw::SharedAddress rows_place(const Params& params, hw::SharedAddress base,
                                                uint32_t tile) {
    return base + (params.scale_room + tile % Stages::kScaleTiles * 2 * params.scale_rows);
  }
  HT_DEVICE static void load_rows(const Params& params, const Sm90MChunk& chunk, uint32_t n0,
                                  hw::SharedAddress base, uint32_t tile, hw::Mbarrier full) {
    const GpuLayout& l = params.gemm.weight;
    const hw::SharedAddress to = rows_place(params, base, tile);
    const uint8_t* from = Scales::address(l, 0, chunk.source[0], n0);
    if (interleaved(params) || !params.gemm.epilogue.gate) {
      hw::bulk_load(to, from, 2 * params.scale_rows, full, hw::kEvictFirst);
    } else {
      hw::bulk_load(to, from, params.scale_rows, full, hw::kEvictFirst);
      hw::bulk_load(to + params.scale_rows, Scales::address(l, 0, chunk.source[1], n0),
                    params.scale_rows, full, hw::kEvictFirst);
    }
  }

  // The epilogue, by a warp of its own, so that its loads of scales and bias stall nobody.
  HT_DEVICE static void epilogue_warp(const Params& params, const SumRing& ring,
                                      hw::SharedAddress base) {
    const GpuGemm& p = params.gemm;
    const uint32_t lane = hw::lane_index(), all = outputs(params), of_half = params.warps_n * 8;
    auto read = ring.consumer();
    for (Sm90TileRange range = range_of(params); range.left > 0; range.next()) {
      Sm90MChunk chunk;
      load_chunk(p, range.chunk, chunk);
      const auto inputs = [&](uint32_t m, uint32_t o) {
        const uint32_t y_row = static_cast<uint32_t>(chunk.rows.first) + m,
                       n = range.tile * all + o;
        if (o >= all || n >= p.n) return EpilogueInputs{};
        return epilogue_inputs(p.epilogue, p.weight, chunk.source[0], chunk.source[1],
                               static_cast<uint32_t>(chunk.rows.expert), y_row, y_row, n);
      };
      EpilogueInputs in = inputs(0, lane);
      const hw::SharedAddress sums = base + (Stages::kSums + read.wait() * Stages::kSumBytes);
      HT_ROLLED
      for (uint32_t m = 0; m < static_cast<uint32_t>(chunk.rows.count); ++m) {
        const auto exponent = hw::load_shared<int32_t>(sums + (Stages::kSumExponents + m * 4));
        const uint32_t y_row = static_cast<uint32_t>(chunk.rows.first) + m;
        HT_ROLLED
        for (uint32_t first = 0; first < all; first += 32) {
          const uint32_t o = first + lane, n = range.tile * all + o;
          const uint32_t place = o < all ? o : all - 1;  // lanes beyond the last read as the last
          float whole[2] = {};
          HT_ROLLED
          for (uint32_t k = 0; k < params.warps_k; ++k) {
            const hw::SharedAddress at =
                sums + (m * Stages::kSumRow + (2 * k * of_half + place) * 4);
            whole[0] += hw::load_shared<float>(at);
            if (p.epilogue.gate) whole[1] += hw::load_shared<float>(at + of_half * 4);
          }
          if (m > 0 || first > 0) in = inputs(m, o);
          if (o >= all || n >= p.n) continue;
          epilogue_output(p.epilogue, in, y_row, n, scaled_by(whole[0], exponent),
                          scaled_by(whole[1], exponent));
        }
      }
      hw::warp_sync();
      read.release(lane == 0);
    }
  }

  // The state of a consumer warp's lane over the tiles.
  struct Lane {
    struct Kept {
      const uint8_t* scales;
      int64_t first_row;
    };
    const Params& params;
    hw::SharedAddress base;
    uint32_t warp, along_k, along_n;
    typename Span::Columns columns;
    Scales scales;
    uint32_t copied[Scales::kEach] = {};  // with scales in shared memory: where the lane's are

    HT_DEVICE Lane(const Params& all, hw::SharedAddress shared)
        : params(all),
          base(shared),
          warp(hw::warp_index()),
          along_k(warp / all.warps_n),
          along_n(warp % all.warps_n),
          columns(shared + Stages::kX, shared + Stages::kZeros, all.x_elements) {
      const uint32_t row = along_n * 8 + hw::lane_index() / 4;
      HT_UNROLL
      for (uint32_t i = 0; i < Scales::kEach; ++i) {
        const uint32_t scale =
            (Scales::kPairs ? hw::lane_index() % 4 : Scales::element(i) >> all.log2_group) *
            Scales::kBytes;
        if constexpr (kLines) {
          copied[i] = 2 * Stages::kHalf +
                      swizzled_in_lines(row * all.scale_line + along_k * all.scale_span + scale,
                                        all.scale_line);
        }
        if constexpr (kRows) copied[i] = along_k * all.scale_span + scale;
      }
    }

    // The scales of a span, which came with its stage or with the first stage of the tile.
    HT_DEVICE void read(hw::SharedAddress stage, uint32_t tile, uint32_t first, Scales& to,
                        hw::Site site = hw::Site::current()) const {
      using Raw = typename Scales::Raw;
      if constexpr (kLines) {
        HT_UNROLL
        for (uint32_t r = 0; r < 2; ++r) {
          HT_UNROLL
          for (uint32_t i = 0; i < Scales::kEach; ++i) {
            to.next[r][i] =
                hw::load_shared<Raw>(stage + (copied[i] + r * Stages::kScaleHalf), site);
          }
        }
      }
      if constexpr (kRows) {
        const auto pitch = static_cast<uint32_t>(params.gemm.weight.scale_row);
        const bool pairs = interleaved(params);
        const uint32_t row = along_n * 8 + hw::lane_index() / 4, last = pitch - Scales::kBytes;
        const hw::SharedAddress rows =
            rows_place(params, base, tile) + row * (pairs ? 2 * pitch : pitch);
        HT_UNROLL
        for (uint32_t i = 0; i < Scales::kEach; ++i) {
          // Beyond the row the scale is multiplied by zeros, and must be finite.
          uint32_t at = first * params.scale_span + copied[i];
          at = at < last ? at : last;
          HT_UNROLL
          for (uint32_t r = 0; r < 2; ++r) {
            to.next[r][i] =
                hw::load_shared<Raw>(rows + (at + r * (pairs ? pitch : params.scale_rows)), site);
          }
        }
      }
    }

    HT_DEVICE void prefetch(uint32_t span) {
      if constexpr (kLaneScales) {
        if (span >= params.spans) return;
        scales.template prefetch<true>(params.gemm, params.log2_group, span);
      }
    }
    // Where the scales of a tile start.
    HT_DEVICE void locate(const GpuSource& source, const GpuSource& other, uint32_t tile) {
      const uint32_t first = tile * outputs(params) + along_n * 8 + hw::lane_index() / 4;
      scales.locate(params.gemm, params.log2_rows, params.gemm.n, source, other, first,
                    second_half(params, first));
    }
    // Of a tile that is not the first of its chunk: registers are short, and so are tiles, a span
    // or two of a warp, so that every instruction here counts.
    HT_DEVICE void locate(uint32_t tile, hw::Site site = hw::Site::current()) {
      if constexpr (kLaneScales) {
        if (params.scale_tile > 0) {
          scales.row[0] += params.scale_tile, scales.row[1] += params.scale_tile;
          return;
        }
        GpuSource source[2];
        HT_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          const auto kept = std::bit_cast<Kept>(
              hw::load_shared<hw::Words4>(base + (Stages::kScales + half * 16), site));
          source[half].scales = kept.scales, source[half].first_row = kept.first_row;
        }
        locate(source[0], source[1], tile);
      }
    }
    HT_DEVICE void keep(const Sm90MChunk& chunk, hw::Site site = hw::Site::current()) const {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const Kept kept{chunk.source[half].scales, chunk.source[half].first_row};
        hw::store_shared(base + (Stages::kScales + half * 16), std::bit_cast<hw::Words4>(kept),
                         site);
      }
    }
    // Stages the rows of x of a chunk, each by an equal share of the warps.
    HT_DEVICE void stage_x(const Sm90MChunk& chunk, bool first) {
      const GpuGemm& p = params.gemm;
      const auto rows = static_cast<uint32_t>(chunk.rows.count);
      const uint32_t places = rows == 3 ? 4 : rows, warps = kWarps / places;
      const uint32_t m = warp / warps, first_warp = m * warps;
      const Sm90GemvThreads threads{(warp - first_warp) * 32 + hw::lane_index(), warps * 32,
                                    first_warp};
      int64_t row = chunk.rows.first + static_cast<int32_t>(m);
      if (m < rows && p.x_rows != nullptr) row = hw::load_global(p.x_rows + row);
      Sm90GemvX<kCode, 4> x(p.x + row * p.x_row, m < rows ? p.k / 8 : 0, threads);
      if (first) {
        hw::warp_sync();
        if (hw::lane_index() == 0) hw::mbarrier_arrive(hw::Mbarrier{base + Stages::kXRead});
      }
      sync();  // nobody reads x of the previous chunk any more
      if (kLaneScales && hw::thread_index().x == 0) keep(chunk);
      const Sm90GemvXDestination to{base + Stages::kX, m, places, params.x_elements};
      x.place(to, base + Stages::kMaxima, [] { sync(); });
      x.pad(to, Stages::padded(p.k));
      if (threads.index == 0) {
        hw::store_shared(base + (Stages::kExponents + m * 4), x.exponent());
      }
      sync();
    }
  };

  // A tile, number `count` of the CTA, by up to kX rows of x; `more`: the next tile belongs to the
  // same chunk.
  template <uint32_t kX>
  HT_DEVICE static void mma_tile(Lane& lane, uint32_t tile, uint32_t count, bool more,
                                 const Ring& ring, typename Ring::Consumer& read,
                                 typename SumRing::Producer& fill) {
    const Params& params = lane.params;
    float sums[kX][2] = {};
    HT_ROLLED
    for (uint32_t first = 0; first < params.spans; first += params.warps_k) {
      const uint32_t span = first + lane.along_k;
      Scales now = lane.scales;
      const bool epilogue = first + params.warps_k >= params.spans;
      if (epilogue && more) lane.locate(tile + 1);
      if (!epilogue || more) lane.prefetch(epilogue ? lane.along_k : span + params.warps_k);
      const uint32_t filled = read.wait();
      const hw::SharedAddress stage = lane.base + filled * Stages::kBytes;
      if (lane.along_k < params.warps_k && span < params.spans) {
        if constexpr (kLines || kRows) lane.read(stage, count, first, now);
        Span::mma(stage, lane.warp * 8 * Stages::kSpan, Stages::kHalf, lane.columns, span, now,
                  params.gemm.weight.scale_format, sums);
      }
      // Read by ld.shared (generic proxy), overwritten by TMA (async proxy).
      hw::fence_proxy_async_shared();
      hw::warp_sync();
      if (hw::lane_index() == 0) hw::mbarrier_arrive(ring.empty(filled));
    }
    const pipe::Slot slot = fill.wait();
    const hw::SharedAddress out = lane.base + (Stages::kSums + slot.stage * Stages::kSumBytes);
    const uint32_t of_half = params.warps_n * 8, row = hw::lane_index() / 4;
    const hw::SharedAddress at = out + (2 * lane.along_k * of_half + lane.along_n * 8 + row) * 4;
    HT_UNROLL
    for (uint32_t m = 0; m < kX; ++m) {
      HT_UNROLL
      for (uint32_t r = 0; r < 2; ++r) {
        float sum = sums[m][r];
        sum += hw::shuffle_xor(sum, 1);
        sum += hw::shuffle_xor(sum, 2);
        if (hw::lane_index() % 4 == 0 && lane.along_k < params.warps_k) {
          hw::store_shared(at + (m * Stages::kSumRow + r * of_half * 4), sum);
        }
      }
    }
    if (lane.warp == 0 && hw::lane_index() < kX) {
      const auto exponent =
          hw::load_shared<int32_t>(lane.base + (Stages::kExponents + hw::lane_index() * 4));
      hw::store_shared(out + (Stages::kSumExponents + hw::lane_index() * 4), exponent);
    }
    hw::warp_sync();
    if (hw::lane_index() == 0) fill.commit(slot);
  }

  HT_DEVICE static void mma_warps(const Params& params, const Ring& ring, const SumRing& sum_ring,
                                  hw::SharedAddress base) {
    Lane lane(params, base);
    if (hw::thread_index().x < Stages::kZeroBytes / 16) {
      hw::store_shared(base + (Stages::kZeros + hw::thread_index().x * 16), hw::Words4{});
    }
    auto read = ring.consumer();
    auto fill = sum_ring.producer();
    uint32_t rows = 0, count = 0;
    for (Sm90TileRange range = range_of(params); range.left > 0; range.next(), ++count) {
      if (range.new_chunk) {
        Sm90MChunk chunk;
        load_chunk(params.gemm, range.chunk, chunk);
        if constexpr (kLaneScales) {
          lane.locate(chunk.source[0], chunk.source[1], range.tile);
          lane.prefetch(lane.along_k);
        }
        lane.stage_x(chunk, rows == 0);
        rows = static_cast<uint32_t>(chunk.rows.count);
      }
      const bool more = range.left > 1 && range.tile + 1 < range.tiles;
      if (rows == 1) {
        mma_tile<1>(lane, range.tile, count, more, ring, read, fill);
      } else if (rows == 2) {
        mma_tile<2>(lane, range.tile, count, more, ring, read, fill);
      } else {
        mma_tile<kMaxRows>(lane, range.tile, count, more, ring, read, fill);
      }
    }
  }

  HT_DEVICE static void run(const Params& params) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const Ring ring{base + Stages::kBarriers};
    const SumRing sum_ring{base + Stages::kSumBarriers};
    // The address of a matrix is a load that depends on another: prefetch the table into the L2.
    constexpr uint32_t kCacheLine = 128;
    const uint32_t table = params.gemm.expert_count * params.gemm.expert_step *
                           static_cast<uint32_t>(sizeof(GpuSource));
    const uint32_t line = (hw::block_index().x * 32 + hw::thread_index().x) * kCacheLine;
    if (hw::thread_index().x < 32 && line < table) {
      hw::prefetch_global<hw::CacheLevel::l2>(
          reinterpret_cast<const uint8_t*>(params.gemm.experts) + line);
    }
    if (hw::thread_index().x == 0) {
      hw::prefetch_tensor_map(&params.w);
      ring.init(1, kWarps);
      sum_ring.init(kWarps, 1);
      sum_ring.name("sums_full", "sums_empty");
      const hw::Mbarrier x_read{base + Stages::kXRead};
      hw::mbarrier_init(x_read, kWarps);
      hw::name_mbarrier(x_read, "x_read", 0);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    // A next kernel with PDL may take this list of chunks as written before it starts: so
    // griddepcontrol.wait comes before launch_dependents.
    if (!params.gemm.static_weights) hw::griddepcontrol_wait();
    hw::griddepcontrol_launch_dependents();
    if (hw::warp_index() == kWarps) {
      if (hw::lane_index() == 0) load(params, ring, base);
      return;
    }
    if (params.gemm.static_weights) hw::griddepcontrol_wait();
    if (hw::warp_index() < kWarps) {
      mma_warps(params, ring, sum_ring, base);
    } else {
      epilogue_warp(params, sum_ring, base);
    }
  }
};

}  // namespace halftone::gemm

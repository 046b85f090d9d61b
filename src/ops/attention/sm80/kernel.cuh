// Attention forward for sm_80 and later (mma.sync, cp.async), correct for every mask, layout and
// mode, head sizes up to 256: O = softmax(scale Q K^T) V.
//
// A CTA has a tile of 32 or 64 rows: queries of one sequence times the heads of one KV head
// (PackGQA), so that a key is read once for all of them. Each warp has 16 rows, or twice 16, and
// keeps their O in registers. K and V have one stage each in shared memory: V is loaded while S = Q
// K^T is computed, the next K during the softmax and O += P V. With few rows K/V are split over
// CTAs, whose partials a second kernel combines in the order of the keys.
//
// MMAs are BF16 or FP16, or FP32 by TF32 splitting (values.cuh). K/V tiles begin at multiples of
// their size from key 0, and a tile in which all keys are masked for a row rescales O by exactly 1
// and adds exactly 0: the bits of a row are a function of its query, its keys and the length of the
// splits.
#pragma once
#include "base/launch.h"
#include "ops/attention/sm80/epilogue.cuh"
#include "ops/attention/sm80/values.cuh"

namespace halftone::attention_sm80 {

// One instance. `dim` is the largest of head_dim and value_dim.
struct Tile {
  uint32_t dim, keys, warps;
  uint32_t fragments;  // of 16 rows a warp
  uint32_t blocks;     // CTAs a multiprocessor that registers must allow
};

template <hw::Type kType, Tile kTile>
struct Forward {
  using Params = attention_sm80::Params;
  using Math = Mma<kType>;
  using Score = Scores<kTile.keys>;
  static constexpr uint32_t kDim = kTile.dim, kKeys = kTile.keys, kFragments = kTile.fragments;
  static constexpr uint32_t kRows = 16 * kTile.warps * kFragments;
  static constexpr uint32_t kThreads = 32 * kTile.warps, kMinBlocks = kTile.blocks;
  using Load = Loader<kType, kDim, kKeys, kThreads>;
  using Value = Values<kType, kDim, kKeys, kThreads>;
  static constexpr uint32_t kRowBytes = Load::kRowBytes;
  // Tiles of the keys whose P in NVFP4 share a second-level scale.
  static constexpr uint32_t kLevelTiles = kNvfp4Keys / kKeys;
  static_assert(kNvfp4Keys % kKeys == 0, "whole tiles");

  static constexpr uint32_t kK = kRows * kRowBytes, kV = kK + Load::kTileBytes;
  static constexpr uint32_t kKScales = kV + Load::kTileBytes;
  static constexpr uint32_t kVScales = kKScales + Load::kScaleBytes;
  static constexpr uint32_t kRowInfo = kVScales + Load::kScaleBytes;
  static constexpr uint32_t kRaw = kRowInfo + (RowInfo<kRows>::kBytes + 15) / 16 * 16;
  static_assert(kRaw + 2 * Load::kRawBytes <= 99 * 1024, "what every GPU gives a CTA");

  static LaunchShape shape(const Params& p) {
    const bool dequantises = !Load::direct(p.k.format) || !Load::direct(p.v.format);
    const uint64_t blocks = uint64_t{p.batch} * p.kv_heads * p.splits * p.row_tiles;
    return {.grid = {static_cast<uint32_t>(blocks), 1, 1},
            .block = {kThreads, 1, 1},
            .shared_bytes = kRaw + (dequantises ? 2 * Load::kRawBytes : 0)};
  }

  using P = typename Value::P;                        // or S, of a fragment
  using Accumulators = typename Value::Accumulators;  // O of a fragment

  HT_DEVICE static void run(const Params& p) {
    Work work;
    if (!locate(p, kRows, kKeys, work)) return;
    const hw::SharedAddress base = hw::shared_memory_base();
    load_queries(p, work, base);
    Accumulators o[kFragments] = {};
    Row rows[kFragments][2];
    set_row_info(p, work, {base + kRowInfo});
    if (work.tiles.first < work.tiles.end) mainloop(p, work, base, rows, o);
    HT_UNROLL
    for (uint32_t f = 0; f < kFragments; ++f) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) store(p, work, rows[f][half], f, half, o[f]);
    }
  }

  // The row of the CTA's tile that the thread holds a part of.
  HT_DEVICE static uint32_t row_of(uint32_t fragment, uint32_t half) {
    return (hw::warp_index() * kFragments + fragment) * 16 + hw::lane_index() / 4 + 8 * half;
  }

  // Loads Q, rounded to the MMA's type where it is wider.
  HT_DEVICE static void load_queries(const Params& p, const Work& work, hw::SharedAddress base) {
    constexpr uint32_t kWords = 16;  // of FP32
    const uint32_t thread = hw::thread_index().x, unit_size = unit_bytes(p.q.format);
    const uint32_t bytes = p.head_dim * element_bits(p.q.format) / 8;
    HT_ROLLED
    for (uint32_t i = 0; i < kRows * Load::kUnits / kThreads; ++i) {
      const uint32_t row = thread / 4 + kThreads / 4 * (i / (Load::kUnits / 4));
      const uint32_t unit = thread % 4 + i % (Load::kUnits / 4) * 4;
      float x[kUnit] = {};
      const uint32_t exist = remaining(bytes, unit * unit_size, unit_size);
      if (work.first_row + row < work.rows && exist > 0) {
        const QueryIndex at = work.query(p, work.first_row + row);
        uint32_t raw[kWords];
        load_unit(data_of(p.q, at.index, at.head) + unit * unit_size, exist, p.q.copy_bytes >= 4,
                  raw);
        uint32_t scale = 0;
        if (p.q.scaling == Scales::block) {
          scale = encoded_scale(p.q, scales_of(p.q, at.index, at.head), unit);
        }
        decode_unit(p.q.format, raw, scale, x);
      }
      store_unit<kType, kRowBytes>(base, row, unit, x);
    }
  }

  HT_DEVICE static void set_row_info(const Params& p, const Work& work,
                                     const RowInfo<kRows>& info) {
    static_assert(kRows <= kThreads, "a thread for each row");
    if (hw::thread_index().x >= kRows) return;
    // Rows past the last repeat it, and are not stored.
    const uint32_t wanted = work.first_row + hw::thread_index().x;
    const QueryIndex at = work.query(p, wanted < work.rows ? wanted : work.rows - 1);
    float factor = work.score_factor;
    if (p.q.scaling == Scales::row) {
      const uint8_t* scale = scales_of(p.q, at.index, at.head);
      factor = hw::mul(factor, hw::load_global(reinterpret_cast<const float*>(scale)));
    }
    info.set(hw::thread_index().x, work.range.keys(at.query),
             p.mask.data + work.batch * p.mask.batch_bytes + at.head * p.mask.head_bytes +
                 at.query * p.mask.query_bytes,
             factor);
  }

  // The mainloop over K/V tiles. P in NVFP4 needs the maximum of kNvfp4Keys keys first: those tiles
  // are walked twice, the first time for the maximum alone.
  HT_DEVICE static void mainloop(const Params& p, const Work& work, hw::SharedAddress base,
                                 Row (&rows)[kFragments][2], Accumulators (&o)[kFragments]) {
    const bool nvfp4 = p.rounding == AttentionRounding::nvfp4;
    const bool active = work.first_row + hw::warp_index() * kFragments * 16 < work.rows;
    Load k{p.k, base + kK, base + kRaw, base + kKScales, p.head_dim, work.kv_head};
    Load v{p.v,         base + kV,   base + (kRaw + Load::kRawBytes), base + kVScales,
           p.value_dim, work.kv_head};
    bool max_pass = nvfp4;
    uint32_t n = work.tiles.first, level_first = n;  // where the tiles of the maximum pass begin
    k.start(work.keys, n);
    for (;;) {
      uint32_t next = n + 1;
      bool next_max_pass = max_pass;
      if (nvfp4 && (next % kLevelTiles == 0 || next == work.tiles.end)) {
        next_max_pass = !max_pass;
        if (max_pass) next = level_first;
        level_first = next;
      }
      const bool last = next >= work.tiles.end;
      k.complete();
      hw::barrier_sync();  // K has arrived, and the V before is no longer read
      if (!max_pass) v.start(work.keys, n);
      P s[kFragments] = {};
      if (active) mma_qk(base, s);
      if (!max_pass) v.complete();
      hw::barrier_sync();  // V has arrived, and K is no longer read
      const hw::SharedAddress key_scales = k.row_scales(n), value_scales = v.row_scales(n);
      const bool masked = work.tiles.masked(n) || p.mask.data != nullptr;
      const bool non_finite = masked && !max_pass && Value::any_non_finite(base + kV);
      if (non_finite) Value::extract_non_finite(base + kV, base + kK);
      if (!non_finite && !last) k.start(work.keys, next);
      if (active) {
        score(p, work, {base + kRowInfo}, rows, s, n, masked, max_pass, key_scales);
        if (!max_pass) {
          softmax_step(p, work, rows, s, o, value_scales);
          Value::mma_pv(base + kV, s, o);
        }
      }
      if (non_finite) {
        hw::barrier_sync();  // V is no longer read
        HT_UNROLL
        for (uint32_t f = 0; f < kFragments; ++f) {
          if (active) Value::add_non_finite(base + kK, base + kV, s[f], o[f]);
        }
        hw::barrier_sync();  // nor the tile that overlays K
        if (!last) k.start(work.keys, next);
      }
      if (last) break;
      n = next, max_pass = next_max_pass;
    }
  }

  // S += Q K^T of the warp's rows.
  HT_DEVICE static void mma_qk(hw::SharedAddress base, P (&s)[kFragments]) {
    const int lane = static_cast<int>(hw::lane_index());
    const tile::RowChunk a_place = tile::ldmatrix_a(lane), b_place = tile::ldmatrix_b(lane);
    const uint32_t a_row = hw::warp_index() * 16 * kFragments + a_place.row;
    HT_UNROLL
    for (uint32_t step = 0; step < kRowBytes / 32; ++step) {
      typename Math::OperandA q[kFragments];
      HT_UNROLL
      for (uint32_t f = 0; f < kFragments; ++f) {
        uint32_t a[4];
        hw::ldmatrix(
            a, chunk_at<kRowBytes>(base, a_row + 16 * f, 2 * (step % 4) + a_place.chunk, step / 4));
        q[f] = Math::operand_a(a);
      }
      HT_UNROLL
      for (uint32_t j = 0; j < kKeys / 8; j += 2) {
        uint32_t b[4];
        hw::ldmatrix(b, chunk_at<kRowBytes>(base + kK, 8 * j + b_place.row,
                                            2 * (step % 4) + b_place.chunk, step / 4));
        HT_UNROLL
        for (uint32_t f = 0; f < kFragments; ++f) {
          Math::add(s[f][j], q[f], b[0], b[1]);
          Math::add(s[f][j + 1], q[f], b[2], b[3]);
        }
      }
    }
  }

  // Scales, softcap and masks; in the maximum pass the maximum.
  HT_DEVICE static void score(const Params& p, const Work& work, const RowInfo<kRows>& info,
                              Row (&rows)[kFragments][2], P (&s)[kFragments], uint32_t n,
                              bool masked, bool max_pass, hw::SharedAddress key_scales) {
    const auto first = static_cast<int32_t>(n * kKeys);
    HT_UNROLL
    for (uint32_t f = 0; f < kFragments; ++f) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        Row& row = rows[f][half];
        if (work.score_mod) {
          Score::apply_score_mod(s[f], half, info, row_of(f, half), first,
                                 p.k.scaling == Scales::row, key_scales, p.softcap, p.mask);
        }
        if (masked) Score::apply_mask(s[f], half, info.visible(row_of(f, half)), first);
        if (!max_pass) continue;
        const float row_max = Score::max_score(s[f], half, work.factor());
        row.level_max = n % kLevelTiles == 0 || n == work.tiles.first
                            ? row_max
                            : hw::max(row.level_max, row_max);
      }
    }
  }

  // Online softmax: S becomes P, rounded, and O is rescaled.
  HT_DEVICE static void softmax_step(const Params& p, const Work& work, Row (&rows)[kFragments][2],
                                     P (&s)[kFragments], Accumulators (&o)[kFragments],
                                     hw::SharedAddress value_scales) {
    HT_UNROLL
    for (uint32_t f = 0; f < kFragments; ++f) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const float rescale = Score::softmax_step(s[f], half, rows[f][half], work.factor(),
                                                  p.rounding == AttentionRounding::nvfp4);
        HT_UNROLL
        for (uint32_t j = 0; j < kDim / 8; ++j) {
          HT_UNROLL
          for (uint32_t i = 2 * half; i < 2 * half + 2; ++i) {
            o[f][j][i] = hw::mul(o[f][j][i], rescale);
          }
        }
        Score::round_p(s[f], half, p.rounding, p.v.scaling == Scales::row, value_scales);
      }
    }
  }

  // Stores a row: finished, or as the partial of one split.
  HT_DEVICE static void store(const Params& p, const Work& work, const Row& row, uint32_t fragment,
                              uint32_t half, const Accumulators& o) {
    const uint32_t index = work.first_row + row_of(fragment, half), lane = hw::lane_index();
    const float sum = quad_sum(row.sum);
    if (index >= work.rows) return;
    if (p.splits > 1) {
      const uint64_t at = work.partial_row(p, index);
      if (lane % 4 == 0) {
        hw::store_global(reinterpret_cast<hw::Vector<float, 2>*>(p.partial_stats + 2 * at),
                         hw::Vector<float, 2>{{row.reference, sum}});
      }
      float* to = p.partial_out + at * p.partial_stride;
      HT_UNROLL
      for (uint32_t j = 0; j < kDim / 8; ++j) {
        const uint32_t column = 8 * j + lane % 4 * 2;
        if (sum == 0 || column >= p.value_dim) continue;
        hw::store_global(reinterpret_cast<hw::Vector<float, 2>*>(to + column),
                         hw::Vector<float, 2>{{o[j][2 * half], o[j][2 * half + 1]}});
      }
      return;
    }
    const QueryIndex at = work.query(p, index);
    const OutputScale scale =
        finalize_row(p, work.batch, at.head, at.query, row.reference, sum, lane % 4 == 0);
    const int64_t out =
        at.index.outer * p.out.batch + at.index.row * p.out.row + at.head * p.out.head;
    HT_UNROLL
    for (uint32_t j = 0; j < kDim / 8; ++j) {
      store_pair(p.out, out, 8 * j + lane % 4 * 2, p.value_dim,
                 scale.empty ? 0 : hw::mul(o[j][2 * half], scale.factor),
                 scale.empty ? 0 : hw::mul(o[j][2 * half + 1], scale.factor));
    }
  }
};

}  // namespace halftone::attention_sm80

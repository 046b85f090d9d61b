// Attention for all GPUs from sm_80 on, by mma.sync and cp.async: correct for every mask, layout
// and mode; O = softmax(scale Q K^T) V.
//
// A block has a tile of rows: queries of one sequence times the heads that share a key head, packed
// together, so that a key is read once for all of them. Each warp has 16 rows, or twice 16, and
// keeps their O in registers. K and V of a tile of keys have one place each in shared memory: V
// comes while S = Q K^T is computed, the next K during the softmax and O += P V. With few rows
// blocks take runs of keys each, whose results are combined by a second kernel in the order of the
// keys.
//
// Products are of bf16 or f16, or of f32 by three products of tf32 (sm80_values.cuh). Tiles of keys
// begin at multiples of their size from key 0, and a tile that a row sees nothing of multiplies
// what it has by exactly 1 and adds exactly 0: the bits of a row are a function of its query, its
// keys and the length of the runs.
#pragma once
#include "base/launch.h"
#include "ops/attention/sm80/epilogue.cuh"
#include "ops/attention/sm80/values.cuh"

namespace halftone::attention_sm80 {

// One instance. `dim` is the largest of head_dim and value_dim.
struct Tile {
  uint32_t dim, keys, warps;
  uint32_t fragments;  // of 16 rows a warp
  uint32_t blocks;     // that registers shall allow on a multiprocessor
};

template <hw::Type kType, Tile kTile>
struct Forward {
  using Params = attention_sm80::Params;
  using Math = Product<kType>;
  using Score = Scores<kTile.keys>;
  static constexpr uint32_t kDim = kTile.dim, kKeys = kTile.keys, kFragments = kTile.fragments;
  static constexpr uint32_t kRows = 16 * kTile.warps * kFragments;
  static constexpr uint32_t kThreads = 32 * kTile.warps, kMinBlocks = kTile.blocks;
  using Load = Loader<kType, kDim, kKeys, kThreads>;
  using Value = Values<kType, kDim, kKeys, kThreads>;
  static constexpr uint32_t kRowBytes = Load::kRowBytes;
  // Tiles of the keys whose P in NVFP4 have a second level of their own.
  static constexpr uint32_t kLevelTiles = kNvfp4Keys / kKeys;
  static_assert(kNvfp4Keys % kKeys == 0, "whole tiles");

  static constexpr uint32_t kK = kRows * kRowBytes, kV = kK + Load::kTileBytes;
  static constexpr uint32_t kKScales = kV + Load::kTileBytes;
  static constexpr uint32_t kVScales = kKScales + Load::kScaleBytes;
  static constexpr uint32_t kFacts = kVScales + Load::kScaleBytes;
  static constexpr uint32_t kRaw = kFacts + (RowFacts<kRows>::kBytes + 15) / 16 * 16;
  static_assert(kRaw + 2 * Load::kRawBytes <= 99 * 1024, "what every GPU gives a block");

  static LaunchShape shape(const Params& p) {
    const bool expands = !Load::direct(p.k.format) || !Load::direct(p.v.format);
    const uint64_t blocks = uint64_t{p.batch} * p.kv_heads * p.splits * p.row_tiles;
    return {.grid = {static_cast<uint32_t>(blocks), 1, 1},
            .block = {kThreads, 1, 1},
            .shared_bytes = kRaw + (expands ? 2 * Load::kRawBytes : 0)};
  }

  using P = typename Value::P;        // or scores, of a fragment
  using Sums = typename Value::Sums;  // O of a fragment

  HT_DEVICE static void run(const Params& p) {
    Block block;
    if (!locate(p, kRows, kKeys, block)) return;
    const hw::SharedAddress base = hw::shared_memory_base();
    load_queries(p, block, base);
    Sums o[kFragments] = {};
    Row rows[kFragments][2];
    describe_rows(p, block, {base + kFacts});
    if (block.tiles.first < block.tiles.end) walk(p, block, base, rows, o);
    HT_UNROLL
    for (uint32_t f = 0; f < kFragments; ++f) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) store(p, block, rows[f][half], f, half, o[f]);
    }
  }

  // Of the block's rows, the one that the thread holds a part of.
  HT_DEVICE static uint32_t row_of(uint32_t fragment, uint32_t half) {
    return (hw::warp_index() * kFragments + fragment) * 16 + hw::lane_index() / 4 + 8 * half;
  }

  // Q, rounded to what is multiplied where it is wider.
  HT_DEVICE static void load_queries(const Params& p, const Block& block, hw::SharedAddress base) {
    constexpr uint32_t kWords = 16;  // of f32
    const uint32_t thread = hw::thread_index().x, unit_size = unit_bytes(p.q.format);
    const uint32_t bytes = p.head_dim * element_bits(p.q.format) / 8;
    HT_ROLLED
    for (uint32_t i = 0; i < kRows * Load::kUnits / kThreads; ++i) {
      const uint32_t row = thread / 4 + kThreads / 4 * (i / (Load::kUnits / 4));
      const uint32_t unit = thread % 4 + i % (Load::kUnits / 4) * 4;
      float x[kUnit] = {};
      const uint32_t exist = left(bytes, unit * unit_size, unit_size);
      if (block.first_row + row < block.rows && exist > 0) {
        const QueryPlace at = block.query(p, block.first_row + row);
        uint32_t raw[kWords];
        load_unit(data_of(p.q, at.place, at.head) + unit * unit_size, exist, p.q.copy_bytes >= 4,
                  raw);
        uint32_t scale = 0;
        if (p.q.scaling == Scales::block) {
          scale = scale_code(p.q, scales_of(p.q, at.place, at.head), unit);
        }
        decode_unit(p.q.format, raw, scale, x);
      }
      store_unit<kType, kRowBytes>(base, row, unit, x);
    }
  }

  HT_DEVICE static void describe_rows(const Params& p, const Block& block,
                                      const RowFacts<kRows>& facts) {
    static_assert(kRows <= kThreads, "a thread for each row");
    if (hw::thread_index().x >= kRows) return;
    // Rows beyond the last do what it does, and are not stored.
    const uint32_t wanted = block.first_row + hw::thread_index().x;
    const QueryPlace at = block.query(p, wanted < block.rows ? wanted : block.rows - 1);
    float factor = block.score_factor;
    if (p.q.scaling == Scales::row) {
      const uint8_t* scale = scales_of(p.q, at.place, at.head);
      factor = hw::mul(factor, hw::load_global(reinterpret_cast<const float*>(scale)));
    }
    facts.set(hw::thread_index().x, block.range.keys(at.query),
              p.mask.data + block.batch * p.mask.batch_bytes + at.head * p.mask.head_bytes +
                  at.query * p.mask.query_bytes,
              factor);
  }

  // All tiles of keys. P in NVFP4 wants the largest score of kNvfp4Keys keys first: those tiles are
  // walked twice, the first time to measure.
  HT_DEVICE static void walk(const Params& p, const Block& block, hw::SharedAddress base,
                             Row (&rows)[kFragments][2], Sums (&o)[kFragments]) {
    const bool nvfp4 = p.rounding == AttentionRounding::nvfp4;
    const bool active = block.first_row + hw::warp_index() * kFragments * 16 < block.rows;
    Load k{p.k, base + kK, base + kRaw, base + kKScales, p.head_dim, block.kv_head};
    Load v{p.v,         base + kV,    base + (kRaw + Load::kRawBytes), base + kVScales,
           p.value_dim, block.kv_head};
    bool measure = nvfp4;
    uint32_t n = block.tiles.first, level = n;  // where the measured tiles begin
    k.start(block.keys, n);
    for (;;) {
      uint32_t next = n + 1;
      bool next_measure = measure;
      if (nvfp4 && (next % kLevelTiles == 0 || next == block.tiles.end)) {
        next_measure = !measure;
        if (measure) next = level;
        level = next;
      }
      const bool last = next >= block.tiles.end;
      k.finish();
      hw::barrier_sync();  // K has come, and nobody reads the V before any more
      if (!measure) v.start(block.keys, n);
      P s[kFragments] = {};
      if (active) multiply_keys(base, s);
      if (!measure) v.finish();
      hw::barrier_sync();  // V has come, and nobody reads K any more
      const hw::SharedAddress key_scales = k.row_scales(n), value_scales = v.row_scales(n);
      const bool masked = block.tiles.masked(n) || p.mask.data != nullptr;
      const bool mend = masked && !measure && Value::any_infinite(base + kV);
      if (mend) Value::separate(base + kV, base + kK);
      if (!mend && !last) k.start(block.keys, next);
      if (active) {
        score(p, block, {base + kFacts}, rows, s, n, masked, measure, key_scales);
        if (!measure) {
          weigh(p, block, rows, s, o, value_scales);
          Value::multiply(base + kV, s, o);
        }
      }
      if (mend) {
        hw::barrier_sync();  // nobody reads V any more
        HT_UNROLL
        for (uint32_t f = 0; f < kFragments; ++f) {
          if (active) Value::add_infinite(base + kK, base + kV, s[f], o[f]);
        }
        hw::barrier_sync();  // nor what stands in the place of K
        if (!last) k.start(block.keys, next);
      }
      if (last) break;
      n = next, measure = next_measure;
    }
  }

  // S += Q K^T of the warp's rows.
  HT_DEVICE static void multiply_keys(hw::SharedAddress base, P (&s)[kFragments]) {
    const int lane = static_cast<int>(hw::lane_index());
    const tile::RowChunk a_place = tile::ldmatrix_a(lane), b_place = tile::ldmatrix_b(lane);
    const uint32_t a_row = hw::warp_index() * 16 * kFragments + a_place.row;
    HT_UNROLL
    for (uint32_t step = 0; step < kRowBytes / 32; ++step) {
      typename Math::Left q[kFragments];
      HT_UNROLL
      for (uint32_t f = 0; f < kFragments; ++f) {
        uint32_t a[4];
        hw::ldmatrix(
            a, chunk_at<kRowBytes>(base, a_row + 16 * f, 2 * (step % 4) + a_place.chunk, step / 4));
        q[f] = Math::left(a);
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

  // Scales, rules and mask; of tiles that are only measured the largest.
  HT_DEVICE static void score(const Params& p, const Block& block, const RowFacts<kRows>& facts,
                              Row (&rows)[kFragments][2], P (&s)[kFragments], uint32_t n,
                              bool masked, bool measure, hw::SharedAddress key_scales) {
    const auto first = static_cast<int32_t>(n * kKeys);
    HT_UNROLL
    for (uint32_t f = 0; f < kFragments; ++f) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        Row& row = rows[f][half];
        if (block.ruled) {
          Score::apply_rules(s[f], half, facts, row_of(f, half), first, p.k.scaling == Scales::row,
                             key_scales, p.softcap, p.mask);
        }
        if (masked) Score::hide(s[f], half, facts.seen(row_of(f, half)), first);
        if (!measure) continue;
        const float top = Score::largest(s[f], half, block.factor());
        row.tile_top =
            n % kLevelTiles == 0 || n == block.tiles.first ? top : hw::max(row.tile_top, top);
      }
    }
  }

  // Scores become P, and what was summed before is brought to their scale.
  HT_DEVICE static void weigh(const Params& p, const Block& block, Row (&rows)[kFragments][2],
                              P (&s)[kFragments], Sums (&o)[kFragments],
                              hw::SharedAddress value_scales) {
    HT_UNROLL
    for (uint32_t f = 0; f < kFragments; ++f) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const float rescale = Score::weigh(s[f], half, rows[f][half], block.factor(),
                                           p.rounding == AttentionRounding::nvfp4);
        HT_UNROLL
        for (uint32_t j = 0; j < kDim / 8; ++j) {
          HT_UNROLL
          for (uint32_t i = 2 * half; i < 2 * half + 2; ++i) {
            o[f][j][i] = hw::mul(o[f][j][i], rescale);
          }
        }
        Score::round(s[f], half, p.rounding, p.v.scaling == Scales::row, value_scales);
      }
    }
  }

  // A row to where it belongs: finished, or as the part of one run of keys.
  HT_DEVICE static void store(const Params& p, const Block& block, const Row& row,
                              uint32_t fragment, uint32_t half, const Sums& o) {
    const uint32_t index = block.first_row + row_of(fragment, half), lane = hw::lane_index();
    const float sum = quad_sum(row.sum);
    if (index >= block.rows) return;
    if (p.splits > 1) {
      const uint64_t at = block.partial_row(p, index);
      if (lane % 4 == 0) {
        hw::store_global(reinterpret_cast<hw::Vector<float, 2>*>(p.partial_sums + 2 * at),
                         hw::Vector<float, 2>{{row.shift, sum}});
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
    const QueryPlace at = block.query(p, index);
    const Finished end =
        finish_row(p, block.batch, at.head, at.query, row.shift, sum, lane % 4 == 0);
    const int64_t out =
        at.place.outer * p.out.batch + at.place.row * p.out.row + at.head * p.out.head;
    HT_UNROLL
    for (uint32_t j = 0; j < kDim / 8; ++j) {
      store_pair(p.out, out, 8 * j + lane % 4 * 2, p.value_dim,
                 end.empty ? 0 : hw::mul(o[j][2 * half], end.factor),
                 end.empty ? 0 : hw::mul(o[j][2 * half + 1], end.factor));
    }
  }
};

}  // namespace halftone::attention_sm80

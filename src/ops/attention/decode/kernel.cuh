// Decode attention (one query token a sequence) over a BF16, FP16, FP8, INT8 or NVFP4 cache, paged
// or not, for sm_80 and later (quantised caches: sm_90): O = softmax(scale Q K^T) V at the speed of
// reading K and V.
//
// A CTA has up to eight query heads of one KV head and one split of the keys; its eight warps take
// K/V tiles round-robin. K and V go from global memory straight to registers, 16 bytes a lane: S =
// Q K^T has heads as rows and keys as columns of mma.sync, so that a lane needs one piece of a key;
// O^T = V^T P^T has the columns of V as rows and heads as columns, so that a lane needs the same
// columns of four keys, and has P where S left it. Both read quantised values as they are stored
// (dequantise.cuh).
//
// Q and P are FP16 with a power of two a row where FP16 holds the cache format: Q in two terms, in
// the upper and the lower eight rows of its operand.
//
// The warps' partials are merged in shared memory, in order. With split-KV the last CTA of a tile
// to finish combines the splits, in the order of the keys: the same bits, whoever is last
// (combine.cuh).
#pragma once
#include "base/launch.h"
#include "hw/griddep.h"
#include "hw/mma/mma.h"
#include "hw/vote.h"
#include "ops/attention/decode/combine.cuh"
#include "ops/attention/decode/query.cuh"

namespace halftone::attention_decode {

using attention_sm80::quad_max;
using attention_sm80::quad_sum;

// `kBytes` of a row, which is aligned to them; zeros where it is not to be read.
template <uint32_t kBytes>
HT_DEVICE void load_piece(const uint8_t* from, bool read, uint32_t (&words)[kBytes / 4],
                          hw::Site site = hw::Site::current()) {
  using Words = hw::Vector<uint32_t, kBytes / 4>;
  Words piece{};
  if (read) {
    piece = hw::load_global<Words, hw::Cache::read_only_no_allocate>(
        reinterpret_cast<const Words*>(from), site);
  }
  HT_UNROLL
  for (uint32_t i = 0; i < kBytes / 4; ++i) words[i] = piece.at[i];
}

template <Format kFormat, uint32_t kDim, uint32_t kBlocks = 2, uint32_t kWarps = 8>
struct Decode {
  using Params = attention_decode::Params;
  using Policy = CacheFormat<kFormat>;
  static constexpr uint32_t kThreads = 32 * kWarps, kMinBlocks = kBlocks;
  static constexpr uint32_t kKeys = Policy::kKeys, kBits = Policy::kBits;
  static constexpr uint32_t kGroup = Policy::kGroup;
  static constexpr hw::Type kType = Policy::kType;
  static constexpr bool kHalf = kType == hw::Type::f16;

  // Four lanes share a key of K, 16 bytes a lane at a time; eight lanes a key of V.
  static constexpr uint32_t kRowBytes = kDim * kBits / 8;
  static constexpr uint32_t kKeyPiece = kRowBytes / 4 < 16 ? kRowBytes / 4 : 16;
  static constexpr uint32_t kKeyPieces = kRowBytes / 4 / kKeyPiece;
  static constexpr uint32_t kValuePiece = kRowBytes / 8 < 16 ? kRowBytes / 8 : 16;
  static constexpr uint32_t kValuePieces = kRowBytes / 8 / kValuePiece;
  static constexpr uint32_t kKeyWords = kKeyPiece / 4, kValueWords = kValuePiece / 4;
  static constexpr uint32_t kWordValues = 32 / kBits, kWordPairs = kWordValues / 2;
  static constexpr uint32_t kSteps = kDim / 16;   // MMAs of a key's row, and of a value's row
  static constexpr uint32_t kColumns = kDim / 8;  // of V a lane
  static constexpr uint32_t kKeyTiles = kKeys / 8, kValueTiles = kKeys / 16;
  static_assert(kKeyPiece >= 4 && kValuePiece >= 4, "whole words");

  using Combiner = Combine<kDim, kWarps, kValueWords * kWordValues>;
  using QueryA = Query<kFormat, kDim, kWarps, kKeyWords>;
  static constexpr uint32_t kQuery = 0;                        // Q as A operands
  static constexpr uint32_t kFactors = kSteps * 32 * 16;       // factors of the rows' scores
  static constexpr uint32_t kPartials = kFactors + kRows * 4;  // what is combined; first Q in FP32
  static constexpr uint32_t kSharedBytes = kPartials + Combiner::kBytes;
  static_assert(kPartials % 16 == 0, "O is stored by 16 bytes");
  static_assert(QueryA::kStagedBytes <= Combiner::kBytes, "Q waits where O will be");

  static LaunchShape shape(const Params& p) {
    return {.grid = {p.kv_heads * p.row_tiles, p.splits, p.batch},
            .block = {kThreads, 1, 1},
            .shared_bytes = kSharedBytes};
  }

  // One K or V tile in flight, in registers.
  struct KeyTile {
    uint32_t words[kKeyTiles][kKeyPieces][kKeyWords];
    uint32_t scales[kKeyTiles];
  };
  struct ValueTile {
    uint32_t words[kValueTiles][4][kValuePieces][kValueWords];
    uint32_t scales[kValueTiles][4][1];
  };
  struct State {
    float o[kSteps][4] = {};
    float row_max = -kInfinity, row_sum = 0;  // of row lane / 4
    float p_scale = 0;  // its P times the scales of V are multiplied by this, a power of two
  };

  HT_DEVICE static void run(const Params& p) {
    if (!p.prefetch_cache) hw::launch_dependents_and_wait();
    Work work;
    if (!work.locate(p, kKeys)) {
      // PDL order: the next kernel relies on those before this one, too.
      if (p.prefetch_cache) hw::launch_dependents_and_wait();
      return;
    }
    const hw::SharedAddress base = hw::shared_memory_base();
    State state;
    KeyTile k;
    ValueTile v;
    constexpr auto kStride = static_cast<int32_t>(kWarps * kKeys);
    int32_t first = work.begin + static_cast<int32_t>(hw::warp_index() * kKeys);
    const auto find = [&](int32_t tile) {
      return work.find(p, tile + static_cast<int32_t>(hw::lane_index() % kKeys));
    };
    int32_t row = find(first);
    // The last key is the query's own, written by the kernel before this one.
    const bool prefetch = p.prefetch_cache && first + static_cast<int32_t>(kKeys) < work.last;
    if (p.prefetch_cache && !prefetch) hw::launch_dependents_and_wait();
    float key_scale = work.row_scale(p.k, row), value_scale = work.row_scale(p.v, row);
    load_keys(p, work, row, k);
    load_values(p, work, row, v);
    row = find(first + kStride);
    if (prefetch) hw::launch_dependents_and_wait();
    QueryA::stage(p, work, base + kPartials, base + kFactors);
    hw::barrier_sync();
    QueryA::build(base + kPartials, base + kQuery);
    hw::barrier_sync();
    HT_ROLLED
    for (; first < work.end; first += kStride) {
      float s[kKeyTiles][4] = {};
      mma_qk(base, k, s);
      const float k_scale = key_scale, v_scale = value_scale;
      load_keys(p, work, row, k);
      key_scale = work.row_scale(p.k, row), value_scale = work.row_scale(p.v, row);
      float score[kKeyTiles][2];
      scores(p, work, base, s, k_scale, first, score);
      softmax_step(p, score, v_scale, state);
      mma_pv(v, score, state.o);
      load_values(p, work, row, v);
      row = find(first + 2 * kStride);
    }
    if constexpr (kHalf) rescale(state.p_scale == 0 ? 0 : 1 / state.p_scale, state.o);
    Combiner::run(p, work, base + kPartials, state.o, state.row_max, quad_sum(state.row_sum));
  }

  HT_DEVICE static void load_keys(const Params& p, const Work& work, int32_t row, KeyTile& k) {
    const uint32_t lane = hw::lane_index();
    const uint8_t* data = p.k.data + work.kv_head * p.k.head_bytes + lane % 4 * kKeyPiece;
    const uint8_t* scales = p.k.scales + work.kv_head * p.k.scale_head_bytes;
    HT_UNROLL
    for (uint32_t n = 0; n < kKeyTiles; ++n) {
      const int32_t mine = hw::shuffle(row, 8 * n + lane / 4);
      const uint8_t* from = data + mine * p.k.row_bytes;
      HT_UNROLL
      for (uint32_t c = 0; c < kKeyPieces; ++c) {
        load_piece<kKeyPiece>(from + c * 4 * kKeyPiece, mine >= 0, k.words[n][c]);
      }
      if constexpr (kGroup > 0) k.scales[n] = key_scales(p, scales, mine, lane % 4);
    }
  }
  // The encoded scales of a lane's elements, a byte each.
  HT_DEVICE static uint32_t key_scales(const Params& p, const uint8_t* scales, int32_t row,
                                       uint32_t part) {
    constexpr uint32_t kCount = kDim / 4 / kGroup;  // contiguous: one piece
    static_assert(kKeyPieces == 1 || kCount == 4, "a lane's elements are contiguous");
    const uint8_t* at = scales + row * p.k.scale_row_bytes;
    if (row < 0) return 0;
    if constexpr (kCount == 1) return hw::load_global(at + part);
    if constexpr (kCount == 2) {
      return hw::load_global(reinterpret_cast<const uint16_t*>(at + 2 * part));
    }
    return uint32_t{hw::load_global(reinterpret_cast<const uint16_t*>(at + 2 * part))} |
           uint32_t{hw::load_global(reinterpret_cast<const uint16_t*>(at + 8 + 2 * part))} << 16;
  }
  HT_DEVICE static void load_values(const Params& p, const Work& work, int32_t row, ValueTile& v) {
    const uint32_t lane = hw::lane_index(), column = lane / 4;
    const uint8_t* data = p.v.data + work.kv_head * p.v.head_bytes + column * kValuePiece;
    const uint8_t* scales =
        p.v.scales + work.kv_head * p.v.scale_head_bytes + value_scale_byte() / 4 * 4;
    HT_UNROLL
    for (uint32_t n = 0; n < kValueTiles; ++n) {
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const int32_t mine = hw::shuffle(row, 16 * n + lane % 4 * 2 + i % 2 + i / 2 * 8);
        const uint8_t* from = data + mine * p.v.row_bytes;
        HT_UNROLL
        for (uint32_t c = 0; c < kValuePieces; ++c) {
          load_piece<kValuePiece>(from + c * 8 * kValuePiece, mine >= 0, v.words[n][i][c]);
        }
        if constexpr (kGroup > 0) {
          const uint8_t* at = scales + mine * p.v.scale_row_bytes;
          load_piece<4>(at, mine >= 0, v.scales[n][i]);
        }
      }
    }
  }
  // A lane loads the four bytes of the row's scales around its own.
  HT_DEVICE static uint32_t value_scale_byte() {
    return hw::lane_index() / 4 * kColumns / (kGroup > 0 ? kGroup : 1);
  }
  static_assert(kGroup == 0 || kColumns <= kGroup, "a lane's columns share a scale");

  // S of a tile: {keys 2t, 2t + 1} of row lane / 4, and the same of the second term of Q.
  HT_DEVICE static void mma_qk(hw::SharedAddress base, const KeyTile& k, float (&s)[kKeyTiles][4]) {
    const uint32_t lane = hw::lane_index();
    uint32_t scale[kKeyTiles][4] = {};
    if constexpr (kGroup > 0) {
      HT_UNROLL
      for (uint32_t n = 0; n < kKeyTiles; ++n) {
        HT_UNROLL
        for (uint32_t i = 0; i < kDim / 4 / kGroup; i += 2) {
          const uint32_t two = Policy::Byte::convert(k.scales[n] >> 8 * i);
          scale[n][i] = hw::prmt(two, 0, 0x1010), scale[n][i + 1] = hw::prmt(two, 0, 0x3232);
        }
      }
    }
    constexpr uint32_t kStepsOfWord = kWordPairs < 2 ? 1 : kWordPairs / 2;
    constexpr uint32_t kWordsOfStep = kWordPairs < 2 ? 2 : 1;
    HT_UNROLL
    for (uint32_t w = 0; w < kKeyPieces * kKeyWords; w += kWordsOfStep) {
      hw::Words4 a[kStepsOfWord];
      HT_UNROLL
      for (uint32_t j = 0; j < kStepsOfWord; ++j) {
        const uint32_t step = w / kWordsOfStep * kStepsOfWord + j;
        a[j] = hw::load_shared<hw::Words4>(base + (kQuery + (step * 32 + lane) * 16));
      }
      HT_UNROLL
      for (uint32_t n = 0; n < kKeyTiles; ++n) {
        uint32_t pairs[kWordsOfStep * kWordPairs];
        HT_UNROLL
        for (uint32_t i = 0; i < kWordsOfStep; ++i) {
          const uint32_t word = w + i;
          uint32_t part[kWordPairs];
          const uint32_t group = kGroup > 0 ? word * kWordValues / (kGroup > 0 ? kGroup : 1) : 0;
          Policy::key_pairs(k.words[n][word / kKeyWords][word % kKeyWords], scale[n][group], part);
          HT_UNROLL
          for (uint32_t j = 0; j < kWordPairs; ++j) pairs[i * kWordPairs + j] = part[j];
        }
        HT_UNROLL
        for (uint32_t j = 0; j < kStepsOfWord; ++j) {
          const uint32_t q[4] = {a[j].at[0], Policy::kSplitQ ? a[j].at[1] : 0, a[j].at[2],
                                 Policy::kSplitQ ? a[j].at[3] : 0};
          const uint32_t b[2] = {pairs[2 * j], pairs[2 * j + 1]};
          hw::mma_m16n8k16<kType>(s[n], q, b, s[n]);
        }
      }
    }
  }

  // Scores in base-2 exponents, -inf for keys past the split.
  HT_DEVICE static void scores(const Params& p, const Work& work, hw::SharedAddress base,
                               const float (&s)[kKeyTiles][4], float scale, int32_t first,
                               float (&score)[kKeyTiles][2]) {
    const uint32_t lane = hw::lane_index();
    const float factor = hw::load_shared<float>(base + (kFactors + lane / 4 * 4));
    HT_UNROLL
    for (uint32_t n = 0; n < kKeyTiles; ++n) {
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const float x = Policy::kSplitQ ? hw::fma(s[n][i + 2], 0x1p-24f, s[n][i]) : s[n][i];
        score[n][i] = hw::mul(x, factor);
      }
    }
    if (p.k.scaling == Scales::row) {
      HT_UNROLL
      for (uint32_t n = 0; n < kKeyTiles; ++n) {
        HT_UNROLL
        for (uint32_t i = 0; i < 2; ++i) {
          score[n][i] = hw::mul(score[n][i], hw::shuffle(scale, 8 * n + lane % 4 * 2 + i));
        }
      }
    }
    if (p.softcap > 0) {
      const float inverse = 1 / p.softcap;
      HT_UNROLL
      for (uint32_t n = 0; n < kKeyTiles; ++n) {
        HT_UNROLL
        for (uint32_t i = 0; i < 2; ++i) {
          score[n][i] = hw::mul(attention_sm80::tanh(hw::mul(score[n][i], inverse)), p.softcap);
        }
      }
    }
    if (first + static_cast<int32_t>(kKeys) <= work.end) return;
    HT_UNROLL
    for (uint32_t n = 0; n < kKeyTiles; ++n) {
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        if (first + static_cast<int32_t>(8 * n + lane % 4 * 2 + i) >= work.end) {
          score[n][i] = -kInfinity;
        }
      }
    }
  }

  // Rescales rows 2t and 2t + 1 of O by the factors of these rows.
  HT_DEVICE static void rescale(float factor, float (&o)[kSteps][4]) {
    const uint32_t lane = hw::lane_index();
    const float even = hw::shuffle(factor, lane % 4 * 8),
                odd = hw::shuffle(factor, lane % 4 * 8 + 4);
    HT_UNROLL
    for (uint32_t m = 0; m < kSteps; ++m) {
      o[m][0] = hw::mul(o[m][0], even), o[m][1] = hw::mul(o[m][1], odd);
      o[m][2] = hw::mul(o[m][2], even), o[m][3] = hw::mul(o[m][3], odd);
    }
  }
  // Scores become P.
  HT_DEVICE static void softmax_step(const Params& p, float (&score)[kKeyTiles][2], float scale,
                                     State& state) {
    float row_max = score[0][0];
    HT_UNROLL
    for (uint32_t n = 0; n < kKeyTiles; ++n) {
      row_max = hw::max(row_max, hw::max(score[n][0], score[n][1]));
    }
    row_max = hw::max(state.row_max, quad_max(row_max));
    const float reference = row_max == -kInfinity ? 0 : row_max;
    float factor = hw::ex2_approx_ftz(hw::add(state.row_max, -reference));
    float tile_sum = 0;
    HT_UNROLL
    for (uint32_t n = 0; n < kKeyTiles; ++n) {
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        score[n][i] = hw::ex2_approx_ftz(hw::add(score[n][i], -reference));
        tile_sum = hw::add(tile_sum, score[n][i]);
      }
    }
    state.row_sum = hw::fma(state.row_sum, factor, tile_sum);
    state.row_max = row_max;
    if constexpr (kHalf) {
      if (p.v.scaling == Scales::row) {
        const uint32_t lane = hw::lane_index();
        float largest = 0;
        HT_UNROLL
        for (uint32_t n = 0; n < kKeyTiles; ++n) {
          HT_UNROLL
          for (uint32_t i = 0; i < 2; ++i) {
            const float by = hw::shuffle(scale, 8 * n + lane % 4 * 2 + i);
            score[n][i] = hw::mul(score[n][i], by);
            largest = hw::max(largest, score[n][i] < 0 ? -score[n][i] : score[n][i]);
          }
        }
        largest = quad_max(largest);
        // The first that is not 0 becomes 2^12 to 2^13, and none exceeds 2^15.
        if (largest > 0 && (state.p_scale == 0 || hw::mul(largest, state.p_scale) > 0x1p15f)) {
          const uint32_t exponent = std::bit_cast<uint32_t>(largest) >> 23;
          const uint32_t up = exponent < 13 ? 253 : 127 + 12 + 127 - exponent;
          const float p_scale = std::bit_cast<float>((up < 1 ? 1 : up > 253 ? 253 : up) << 23);
          factor = state.p_scale == 0 ? factor : hw::mul(factor, p_scale / state.p_scale);
          state.p_scale = p_scale;
        }
      } else {
        state.p_scale = 0x1p13f;
      }
      HT_UNROLL
      for (uint32_t n = 0; n < kKeyTiles; ++n) {
        HT_UNROLL
        for (uint32_t i = 0; i < 2; ++i) score[n][i] = hw::mul(score[n][i], state.p_scale);
      }
    }
    if (hw::vote_any(factor != 1)) rescale(factor, state.o);
  }

  // P of two keys as a B operand, rounded to BF16 or, with an FP16 cache, to FP16.
  HT_DEVICE static uint32_t p_operand(const float (&x)[2]) {
    if constexpr (kHalf && !Policy::kSplitQ) return hw::cvt_f16x2(x[0], x[1]);
    const uint32_t pair = hw::cvt_bf16x2(x[0], x[1]);
    if constexpr (!kHalf) return pair;
    return hw::cvt_f16x2(std::bit_cast<float>(pair << 16), std::bit_cast<float>(pair & 0xffff0000));
  }
  HT_DEVICE static void mma_pv(const ValueTile& v, const float (&score)[kKeyTiles][2],
                               float (&o)[kSteps][4]) {
    HT_UNROLL
    for (uint32_t n = 0; n < kValueTiles; ++n) {
      const uint32_t b[2] = {p_operand(score[2 * n]), p_operand(score[2 * n + 1])};
      uint32_t scale[2] = {};
      if constexpr (kGroup > 0) {
        const uint32_t byte = value_scale_byte() % 4 * 0x11 + 0x40;  // of two keys' words
        HT_UNROLL
        for (uint32_t j = 0; j < 2; ++j) {
          scale[j] = Policy::Byte::convert(
              hw::prmt(v.scales[n][2 * j][0], v.scales[n][2 * j + 1][0], byte));
        }
      }
      // Columns i of a lane, of keys 2t and 2t + 1, and 2t + 8 and 2t + 9.
      uint32_t columns[2][kColumns];
      HT_UNROLL
      for (uint32_t w = 0; w < kValuePieces * kValueWords; ++w) {
        HT_UNROLL
        for (uint32_t j = 0; j < 2; ++j) {
          uint32_t pairs[kWordValues];
          Policy::value_pairs(v.words[n][2 * j][w / kValueWords][w % kValueWords],
                              v.words[n][2 * j + 1][w / kValueWords][w % kValueWords], scale[j],
                              pairs);
          HT_UNROLL
          for (uint32_t i = 0; i < kWordValues; ++i) columns[j][w * kWordValues + i] = pairs[i];
        }
      }
      HT_UNROLL
      for (uint32_t m = 0; m < kSteps; ++m) {
        const uint32_t a[4] = {columns[0][m], columns[0][m + kSteps], columns[1][m],
                               columns[1][m + kSteps]};
        hw::mma_m16n8k16<kType>(o[m], a, b, o[m]);
      }
    }
  }
};

}  // namespace halftone::attention_decode

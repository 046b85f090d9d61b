// Epilogue of attention on sm_90a: row_sum and sink, LSE, O times the inverse, stores. O leaves
// from registers, through shared memory by TMA, or, with split-KV, as FP32 partials.
#pragma once
#include "hw/copy/bulk_copy.h"
#include "hw/copy/tma.h"
#include "hw/fence.h"
#include "hw/memory.h"
#include "hw/mma/stmatrix.h"
#include "ops/attention/sm90/dense/dense.cuh"
#include "ops/attention/sm90/softmax.cuh"

namespace halftone::attention_sm90 {

// 4 x 4 transpose over four neighbouring lanes: each has a pair of columns of each of four
// fragments before, and all pairs of one fragment, 16 bytes of a row, after.
HT_DEVICE void transpose_quad(uint32_t (&x)[4], uint32_t quad,
                              hw::Site site = hw::Site::current()) {
  HT_UNROLL
  for (uint32_t bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (quad & bit) != 0;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      const uint32_t got = hw::shuffle_xor(upper ? x[i] : x[i | bit], bit, 4, hw::kFullWarp, site);
      (upper ? x[i] : x[i | bit]) = got;
    }
  }
}

// Eight 16-bit columns of a row from `column` on.
template <class Params>
HT_DEVICE void store_columns(const Params& p, uint16_t* row, uint32_t column,
                             const uint32_t (&x)[4], hw::Site site = hw::Site::current()) {
  if constexpr (requires { p.out_by_elements; }) {
    if (p.out_by_elements) {
      HT_UNROLL
      for (uint32_t e = 0; e < 8; ++e) {
        const uint16_t one = static_cast<uint16_t>(x[e / 2] >> 16 * (e % 2));
        if (column + e < p.value_dim) hw::store_global(row + column + e, one, site);
      }
      return;
    }
  }
  if (column < p.value_dim) {
    hw::store_global(reinterpret_cast<hw::Words4*>(row + column),
                     hw::Words4{{x[0], x[1], x[2], x[3]}}, site);
  }
}

// Which columns of O the accumulators hold.
enum class Columns {
  in_order,
  even_then_odd,  // of each 16, as transpose_v in fp8/softmax.cuh permutes V
};

// The columns of a row times `inverse`; 0 where `inverse` is 0.
template <hw::Type kType, Columns kColumns, class Params, uint32_t kCount>
HT_DEVICE void store_row(const Params& p, const OutputRow& output, const float (&o)[kCount],
                         uint32_t half, float inverse) {
  const uint32_t quad = hw::lane_index() % 4;
  const auto pair = [&](uint32_t first, uint32_t second) {
    return inverse == 0
               ? 0
               : round_pair<kType>(hw::mul(o[first], inverse), hw::mul(o[second], inverse));
  };
  if constexpr (kColumns == Columns::in_order) {
    HT_UNROLL
    for (uint32_t j = 0; j < kCount / 4; j += 4) {
      uint32_t part[4];
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        part[i] = pair(4 * (j + i) + 2 * half, 4 * (j + i) + 2 * half + 1);
      }
      transpose_quad(part, quad);
      if (output.exists) store_columns(p, output.out, 8 * (j + quad), part);
    }
  } else {
    // A lane has four neighbouring columns of each 16; of four such blocks it gets one.
    HT_UNROLL
    for (uint32_t j = 0; j < kCount / 8; j += 4) {
      uint32_t part[2][4];
      HT_UNROLL
      for (uint32_t e = 0; e < 2; ++e) {
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t even = 8 * (j + i) + 2 * half + e;
          part[e][i] = pair(even, even + 4);
        }
        transpose_quad(part[e], quad);
      }
      HT_UNROLL
      for (uint32_t i = 0; i < 4; i += 2) {
        if (!output.exists) continue;
        store_columns(p, output.out, 16 * (j + quad) + 4 * i,
                      {part[0][i], part[1][i], part[0][i + 1], part[1][i + 1]});
      }
    }
  }
}

// What a row's O is multiplied by: the inverse of row_sum, 0 where all keys are masked. Writes LSE.
template <class Params, class RowSoftmax>
HT_DEVICE float finalize_row(const Params& p, const OutputRow& output, uint32_t half, bool none,
                             const RowSoftmax& softmax) {
  float sum = softmax.row_sum(half);
  const bool empty = none || sum == 0;
  // The divisor is sum x 2^max_log2; a sink is one more key, of value 0.
  float max_log2 = empty ? -kInfinity : softmax.row_max_log2(half);
  float rescale = 1;
  if (p.sinks != nullptr) {
    const float sink =
        hw::mul(hw::load_global<float>(p.sinks + output.head * p.sink_stride), kLog2e);
    const float new_max = hw::max(max_log2, sink);
    rescale = empty ? 0 : hw::ex2_approx_ftz(hw::add(max_log2, -new_max));
    sum = hw::add(empty ? 0 : hw::mul(sum, rescale), hw::ex2_approx_ftz(hw::add(sink, -new_max)));
    max_log2 = new_max;
  }
  if (p.lse != nullptr && output.exists && hw::lane_index() % 4 == 0) {
    const float lse = hw::mul(hw::add(max_log2, hw::lg2_approx(sum)), kLn2);
    hw::store_global(p.lse + output.lse, empty && p.sinks == nullptr ? -kInfinity : lse);
  }
  return empty ? 0 : rescale / sum;
}

// Normalises O and writes the rows that exist.
template <hw::Type kType, Columns kColumns = Columns::in_order, class Params, class Work,
          class RowSoftmax, uint32_t kCount>
HT_DEVICE void store(const Params& p, const Work& work, int32_t first_row, bool none,
                     const RowSoftmax& softmax, const float (&o)[kCount]) {
  HT_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const OutputRow output = work.output_row(first_row + 8 * static_cast<int32_t>(half));
    const float inverse = finalize_row(p, output, half, none, softmax);
    store_row<kType, kColumns>(p, output, o, half, inverse);
  }
}

// The same through a warp's buffer in shared memory, from which a TMA store takes it while the warp
// goes on.
template <hw::Type kType, class Layout, class Params, class Work, class RowSoftmax, uint32_t kCount>
HT_DEVICE void store_staged(const Params& p, const Work& work, hw::SharedAddress to,
                            int32_t first_row, bool none, const RowSoftmax& softmax,
                            const float (&o)[kCount], hw::Site site = hw::Site::current()) {
  constexpr auto tile = Layout::out_tile();
  const uint32_t lane = hw::lane_index();
  float inverse[2];
  HT_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const OutputRow output = work.output_row(first_row + 8 * static_cast<int32_t>(half));
    inverse[half] = finalize_row(p, output, half, none, softmax);
  }
  const auto pair = [&](uint32_t i) {
    const float scale = inverse[i / 2 % 2];
    return scale == 0 ? 0 : round_pair<kType>(hw::mul(o[i], scale), hw::mul(o[i + 1], scale));
  };
  if (lane == 0) hw::bulk_wait_read<0>(site);  // the previous TMA store has read the buffer
  hw::warp_sync(hw::kFullWarp, site);
  HT_UNROLL
  for (uint32_t i = 0; i < kCount; i += 8) {
    // stmatrix: rows 0 to 7 and 8 to 15 of eight columns, and of the next eight.
    const hw::SharedAddress row =
        to + (i / 32 * tile.panel_bytes() +
              tile::chunk_offset(tile.swizzle, lane % 16, i / 4 % 8 + lane / 16));
    hw::stmatrix(row, {pair(i), pair(i + 2), pair(i + 4), pair(i + 6)}, site);
  }
  hw::fence_proxy_async_shared(site);
  hw::warp_sync(hw::kFullWarp, site);
  if (lane != 0) return;
  HT_UNROLL
  for (uint32_t panel = 0; panel < tile.panels(); ++panel) {
    hw::tensor_store(
        &p.staged,
        {static_cast<int32_t>(panel * Layout::kPanel), static_cast<int32_t>(work.t.head), first_row,
         static_cast<int32_t>(work.t.sequence)},
        to + panel * tile.panel_bytes(), site);
  }
  hw::bulk_commit(site);
}

// Statistics of a row in one split: the sum of its P is sum x 2^max_log2.
struct SplitStats {
  float max_log2, sum;
};

// What a split leaves for combine.cuh: unnormalised O and its statistics; {-inf, 0} and no O where
// all keys of the split are masked for the row.
template <class Params, class Work, class RowSoftmax, uint32_t kCount>
HT_DEVICE void store_partial(const Params& p, const Work& work, int32_t first_row, bool none,
                             const RowSoftmax& softmax, const float (&o)[kCount]) {
  const uint32_t quad = hw::lane_index() % 4;
  HT_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const int32_t row = first_row + 8 * static_cast<int32_t>(half);
    const float sum = softmax.row_sum(half);
    const bool empty = none || sum == 0;
    if (!work.output_row(row).exists) continue;
    const int64_t index = work.partial_row(row);
    if (quad == 0) {
      hw::store_global(p.partial_stats + index, empty
                                                    ? SplitStats{-kInfinity, 0}
                                                    : SplitStats{softmax.row_max_log2(half), sum});
    }
    if (empty) continue;
    float* to = p.partial_out + index * p.partial_stride;
    HT_UNROLL
    for (uint32_t j = 0; j < kCount / 4; ++j) {
      const uint32_t column = 8 * j + 2 * quad;
      if (column >= p.partial_stride) continue;
      hw::store_global(reinterpret_cast<hw::Vector<float, 2>*>(to + column),
                       hw::Vector<float, 2>{{o[4 * j + 2 * half], o[4 * j + 2 * half + 1]}});
    }
  }
}

}  // namespace halftone::attention_sm90

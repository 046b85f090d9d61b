// Attention on Hopper: what a warpgroup does with its sums.
#pragma once
#include "hw/copy/bulk_copy.h"
#include "hw/copy/tma.h"
#include "hw/fence.h"
#include "hw/memory.h"
#include "hw/mma/stmatrix.h"
#include "ops/attention/sm90/dense/dense.cuh"
#include "ops/attention/sm90/softmax.cuh"

namespace halftone::attention_sm90 {

// Four neighbouring lanes hold a 4 x 4 matrix by columns, afterwards by rows: of a pair of columns
// of each of four fragments, each lane gets all pairs of one, 16 bytes of a row.
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

// Which columns the accumulators are.
enum class Columns {
  in_order,
  even_then_odd,  // of each 16, as sm90_fp8_math.cuh turns V
};

// The columns of a row, times `inverse`; 0 where it is.
template <hw::Type kType, Columns kColumns, class Params, uint32_t kCount>
HT_DEVICE void store_row(const Params& p, const Place& place, const float (&o)[kCount],
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
      if (place.exists) store_columns(p, place.out, 8 * (j + quad), part);
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
        if (!place.exists) continue;
        store_columns(p, place.out, 16 * (j + quad) + 4 * i,
                      {part[0][i], part[1][i], part[0][i + 1], part[1][i + 1]});
      }
    }
  }
}

// What a row's O is to be multiplied by: the inverse of its sum, 0 where the row is empty. Writes
// the log-sum-exp.
template <class Params, class RowSoftmax>
HT_DEVICE float finish_row(const Params& p, const Place& place, uint32_t half, bool none,
                           const RowSoftmax& softmax) {
  float sum = softmax.row_sum(half);
  const bool empty = none || sum == 0;
  // The divisor is sum x 2^level; a sink joins it as one more key, of value 0.
  float level = empty ? -kInfinity : softmax.row_level(half);
  float factor = 1;
  if (p.sinks != nullptr) {
    const float sink =
        hw::mul(hw::load_global<float>(p.sinks + place.head * p.sink_stride), kLog2e);
    const float top = hw::max(level, sink);
    factor = empty ? 0 : hw::ex2_approx_ftz(hw::add(level, -top));
    sum = hw::add(empty ? 0 : hw::mul(sum, factor), hw::ex2_approx_ftz(hw::add(sink, -top)));
    level = top;
  }
  if (p.lse != nullptr && place.exists && hw::lane_index() % 4 == 0) {
    const float lse = hw::mul(hw::add(level, hw::lg2_approx(sum)), kLn2);
    hw::store_global(p.lse + place.lse, empty && p.sinks == nullptr ? -kInfinity : lse);
  }
  return empty ? 0 : factor / sum;
}

// Divides by the sum and writes the rows that exist.
template <hw::Type kType, Columns kColumns = Columns::in_order, class Params, class Work,
          class RowSoftmax, uint32_t kCount>
HT_DEVICE void store(const Params& p, const Work& work, int32_t first_row, bool none,
                     const RowSoftmax& softmax, const float (&o)[kCount]) {
  HT_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const Place place = work.place(first_row + 8 * static_cast<int32_t>(half));
    const float inverse = finish_row(p, place, half, none, softmax);
    store_row<kType, kColumns>(p, place, o, half, inverse);
  }
}

// The same by way of a warp's place in shared memory, from where the copy engine takes it while the
// warp goes on.
template <hw::Type kType, class Layout, class Params, class Work, class RowSoftmax, uint32_t kCount>
HT_DEVICE void store_staged(const Params& p, const Work& work, hw::SharedAddress to,
                            int32_t first_row, bool none, const RowSoftmax& softmax,
                            const float (&o)[kCount], hw::Site site = hw::Site::current()) {
  constexpr auto tile = Layout::out_tile();
  const uint32_t lane = hw::lane_index();
  float inverse[2];
  HT_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const Place place = work.place(first_row + 8 * static_cast<int32_t>(half));
    inverse[half] = finish_row(p, place, half, none, softmax);
  }
  const auto pair = [&](uint32_t i) {
    const float scale = inverse[i / 2 % 2];
    return scale == 0 ? 0 : round_pair<kType>(hw::mul(o[i], scale), hw::mul(o[i + 1], scale));
  };
  if (lane == 0) hw::bulk_wait_read<0>(site);  // what was here has left
  hw::warp_sync(hw::kFullWarp, site);
  HT_UNROLL
  for (uint32_t i = 0; i < kCount; i += 8) {
    // Rows 0 to 7 and 8 to 15 of eight columns, and of the next eight.
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

// Of a row in one split of the keys: the sum of its P is sum x 2^level.
struct SplitSum {
  float level, sum;
};

// What a split leaves for sm90_combine.cuh: O not divided, and the sum as sum x
// 2^level; 0 x 2^-inf, and no O, where the row sees nothing of the split.
template <class Params, class Work, class RowSoftmax, uint32_t kCount>
HT_DEVICE void store_partial(const Params& p, const Work& work, int32_t first_row, bool none,
                             const RowSoftmax& softmax, const float (&o)[kCount]) {
  const uint32_t quad = hw::lane_index() % 4;
  HT_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const int32_t row = first_row + 8 * static_cast<int32_t>(half);
    const float sum = softmax.row_sum(half);
    const bool empty = none || sum == 0;
    if (!work.place(row).exists) continue;
    const int64_t index = work.partial_row(row);
    if (quad == 0) {
      hw::store_global(p.partial_sums + index,
                       empty ? SplitSum{-kInfinity, 0} : SplitSum{softmax.row_level(half), sum});
    }
    if (empty) continue;
    float* to = p.partial_values + index * p.partial_stride;
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

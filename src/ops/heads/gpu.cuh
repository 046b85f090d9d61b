// The fused heads kernel for 16-bit heads of 64, 128, 256 or 512 elements, on every GPU: norm,
// smoothing, RoPE, Hadamard, store or quantise. A CTA has a token, whose angles it computes once
// for all heads, and a few lanes have a head. A lane holds elements 8 c .. 8 c + 7 and those
// head_dim / 2 further, the pairs of a rotation, and sums them in the order of the norm's own
// kernel, for its bits.
#pragma once
#include <cmath>

#include "formats/gpu/encode.cuh"
#include "halftone/hadamard.h"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "hw/warp.h"
#include "ops/heads/kernels.h"
#include "pipe/rotate.h"

namespace halftone {

struct HeadsParams {
  HeadsArgs args;
  FaultReporter faults;
  uint32_t lanes;  // of a head: head_dim / 16, a power of two
  uint32_t heads;  // of all tensors
  float hadamard;  // the transform's scale where some rows ask for it, else 0
  bool quantises;  // some rows are quantised
  bool caches;     // some rows go to a cache
};

template <pipe::Access kAccess, bool kConvert>
struct HeadsGpu {
  using Params = HeadsParams;
  using Eight = pipe::Eight<kAccess>;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 3;
  static constexpr Format kFormat = pipe::format_of(kAccess, Format::bf16);
  static constexpr int64_t kLastPosition = int64_t{1} << 31;

  HT_DEVICE static void run(const Params& p) {
    const HeadsArgs& args = p.args;
    const uint32_t thread = hw::thread_index().x, part = hw::block_index().y;
    const int64_t token = hw::block_index().x;
    const uint32_t items = p.heads * p.lanes, step = kThreads * hw::grid_size().y;
    Item item(p, part * kThreads + thread, items);
    Eight read[2];
    if (!args.prefetch_positions) {
      // All loads are in flight at the same time.
      hw::launch_dependents_and_wait();
      load(p, token, item, read);
    }
    const int64_t cached = args.cache_positions != nullptr
                               ? hw::load_global(args.cache_positions + token)
                               : args.first + token % args.sequence_tokens;
    bool rotates = args.frequencies != nullptr;
    const pipe::RotationTable table(hw::shared_memory_base(), p.lanes * 8);
    if (rotates) {
      const double frequency = table.first_frequency(args.frequencies, thread);
      const int64_t position =
          pipe::load_index(args.positions, args.wide_positions, token * args.position_stride);
      rotates = position >= 0 && position <= kLastPosition;
      if (rotates) {
        table.fill(args.frequencies, frequency, position, args.magnitude, thread, kThreads);
      } else if (thread == 0 && part == 0) {
        pipe::report_fault(p.faults, Fault::rope_position, token, position, kLastPosition);
      }
      hw::barrier_sync();
    }
    const int64_t slot = p.caches ? args.shape.slot(token / args.sequence_tokens, cached) : 0;
    if (args.prefetch_positions) {
      hw::launch_dependents_and_wait();
      load(p, token, item, read);
    }
    for (int t = 0; t < args.count && thread == 0 && part == 0 && token == 0; ++t) {
      const QuantizeArgs& to = args.rows[t].codes;
      if (to.tensor_scale != nullptr) hw::store_global(to.tensor_scale, to.recipe.tensor_scale);
    }
    for (uint32_t first = part * kThreads; first < items;) {
      head_row(p, args.rows[item.tensor], token, item, read, slot, rotates, table);
      first += step;
      if (first >= items) return;
      item = Item(p, first + thread, items);
      load(p, token, item, read);
    }
  }

  // A lane's share of a head.
  struct Item {
    int tensor = 0;
    uint32_t head, lane;
    bool live;
    HT_DEVICE Item(const Params& p, uint32_t index, uint32_t items)
        : head(index / p.lanes), lane(index % p.lanes), live(index < items) {
      const HeadsArgs& args = p.args;
      while (tensor + 1 < args.count && head >= args.rows[tensor].heads) {
        head -= static_cast<uint32_t>(args.rows[tensor++].heads);
      }
    }
  };
  HT_DEVICE static pipe::Quads place(const Params& p, const Item& item, uint32_t half) {
    const uint32_t column = 8 * (item.lane + half * p.lanes);
    return {column, column + 4};
  }
  HT_DEVICE static void load(const Params& p, int64_t token, const Item& item, Eight (&read)[2]) {
    if (!item.live) return;
    const HeadRows& rows = p.args.rows[item.tensor];
    const char* row = rows.x[token * rows.heads + item.head];
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      read[i].load(kFormat, row, place(p, item, i), p.args.head_dim);
    }
  }

  // All lanes of a warp take part in the shuffles, whatever their rows ask for.
  HT_DEVICE static void head_row(const Params& p, const HeadRows& rows, int64_t token,
                                 const Item& item, Eight (&read)[2], int64_t slot, bool rotates,
                                 const pipe::RotationTable& table) {
    const HeadsArgs& args = p.args;
    const uint32_t head = item.head, lane = item.lane;
    bool live = item.live;
    const int64_t row = token * rows.heads + head, dim = args.head_dim;
    const uint32_t columns[2] = {8 * lane, 8 * (lane + p.lanes)};
    const auto at = [&](uint32_t half) { return place(p, item, half); };
    float x[2][8];
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) read[i].widen(kFormat, x[i]);
    const auto round = [&] {
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        read[i].narrow(kFormat, x[i]);
        read[i].widen(kFormat, x[i]);
      }
    };

    float squares = 0;
    HT_UNROLL
    for (uint32_t i = 0; i < 16; ++i) squares = hw::fma(x[i / 8][i % 8], x[i / 8][i % 8], squares);
    for (uint32_t d = p.lanes / 2; d > 0; d /= 2) squares += hw::shuffle_xor(squares, d);
    if (live && rows.weight != nullptr) {
      const float scale = 1.0f / sqrtf(squares / static_cast<float>(dim) + args.eps);
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        float w[8];
        pipe::load_eight(rows.weight_format, static_cast<const char*>(rows.weight), at(i), dim, w);
        HT_UNROLL
        for (uint32_t k = 0; k < 8; ++k) x[i][k] = x[i][k] * scale * (w[k] + rows.weight_offset);
      }
      round();
    }
    if (live && rows.mean != nullptr) {
      const float* mean = rows.mean + (token / rows.mean_tokens * rows.heads + head) * dim;
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        float m[8];
        pipe::load_eight(Format::f32, reinterpret_cast<const char*>(mean), at(i), dim, m);
        HT_UNROLL
        for (uint32_t k = 0; k < 8; ++k) x[i][k] = x[i][k] - m[k];
      }
      round();
    }
    if (live && rows.rotates && rotates) {
      float c[8], s[8];
      table.load(lane * 8, c, s);
      pipe::rotate_halves(x[0], x[1], c, s);
      round();
    }
    if (p.hadamard != 0) {
      float y[2][8];
      transform(p, lane, columns, x, y);
      if (live && rows.hadamard) {
        HT_UNROLL
        for (uint32_t i = 0; i < 16; ++i) x[i / 8][i % 8] = y[i / 8][i % 8];
        round();
      }
    }

    int64_t target = row;
    if (rows.cached) {
      live = live && slot >= 0;
      target = slot * rows.heads + head;
    }
    const bool plain = rows.codes.codes == nullptr;
    if (p.quantises)
      store_quantised(p, rows, token, head, target, lane, live && !plain, columns, x);
    if (!live || !plain) return;
    char* out = rows.cached ? rows.pages + target * dim * 2 : rows.out[row];
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) read[i].store(kFormat, out, at(i), dim);
  }

  // The Walsh-Hadamard transform of a head: strides 1, 2 and 4 are within eight elements of a lane,
  // 8 to head_dim / 4 between lanes, and head_dim / 2 between the two eights of a lane.
  HT_DEVICE static void transform(const Params& p, uint32_t lane, const uint32_t (&columns)[2],
                                  const float (&x)[2][8], float (&y)[2][8]) {
    const auto butterfly = [](float& a, float& b) {
      const float sum = a + b;
      b = a - b;
      a = sum;
    };
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t signs = hadamard_signs(columns[i] / 8);
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) y[i][k] = (signs >> k & 1) != 0 ? -x[i][k] : x[i][k];
      HT_UNROLL
      for (uint32_t stride = 1; stride < 8; stride *= 2) {
        HT_UNROLL
        for (uint32_t k = 0; k < 8; ++k) {
          if ((k & stride) == 0) butterfly(y[i][k], y[i][k + stride]);
        }
      }
    }
    for (uint32_t d = 1; d < p.lanes; d *= 2) {
      const bool upper = (lane & d) != 0;
      HT_UNROLL
      for (uint32_t i = 0; i < 16; ++i) {
        float& mine = y[i / 8][i % 8];
        mine = hw::shuffle_xor(mine, d) + (upper ? -mine : mine);
      }
    }
    HT_UNROLL
    for (uint32_t k = 0; k < 8; ++k) {
      butterfly(y[0][k], y[1][k]);
      y[0][k] = y[0][k] * p.hadamard;
      y[1][k] = y[1][k] * p.hadamard;
    }
  }

  HT_DEVICE static void store_quantised(const Params& p, const HeadRows& rows, int64_t token,
                                        uint32_t head, int64_t target, uint32_t lane, bool live,
                                        const uint32_t (&columns)[2], const float (&x)[2][8]) {
    const QuantizeArgs& to = rows.codes;
    const auto dim = static_cast<uint32_t>(p.args.head_dim);
    const uint32_t group = to.recipe.group > 0 ? static_cast<uint32_t>(to.recipe.group) : dim;
    const bool joint = group == dim;
    const uint32_t lanes = joint ? p.lanes : group / 8;
    BlockRange range[2];
    range[0].add(x[0], true), range[1].add(x[1], true);
    if (joint) range[0] = range[1] = both(range[0], range[1]);
    for (uint32_t d = p.lanes / 2; d > 0; d /= 2) {
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const BlockRange other{hw::shuffle_xor(range[i].most, d), hw::shuffle_xor(range[i].low, d),
                               hw::shuffle_xor(range[i].up, d)};
        if (d < lanes) range[i] = both(range[i], other);
      }
    }
    if (!live) return;
    const uint32_t groups = dim / group;
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      const bool fixed = rows.static_scale > 0;
      const ZeroPoint chosen = fixed ? ZeroPoint{scale_near(to.recipe, rows.static_scale), 0}
                                     : range[i].scale(to.recipe);
      const uint32_t g = columns[i] / group;
      if (lane % lanes == 0 && (i == 0 || !joint)) {
        const int64_t index = target * groups + g;
        const bool linear = to.layout == ScaleLayout::linear;
        store_block_scale(
            to, to.recipe, p.faults, range[i], chosen, index,
            linear ? index
                   : token * to.scale_bytes + scale_offset(to.layout, rows.heads, groups, head, g));
      }
      const uint64_t codes =
          fixed || range[i].finite()
              ? encode_eight<kConvert>(to.recipe, x[i], chosen.scale.multiplier, chosen.zero)
              : 0;
      store_eight(to.recipe.format, to.codes, target * dim + columns[i], codes);
    }
  }
  HT_DEVICE static BlockRange both(const BlockRange& a, const BlockRange& b) {
    return {hw::max_nan(a.most, b.most), hw::min(a.low, b.low), hw::max(a.up, b.up)};
  }
};

}  // namespace halftone

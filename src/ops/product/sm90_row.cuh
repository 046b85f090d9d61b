// One row of x times W on Hopper. Blocks stay: each takes every grid-th tile of 16 rows of W as one
// stream of tensor copies, which begins before its turn where W is constant; the warps share the K
// of a tile, a span of 128 bytes of the rows at a time.
//
// The MMA has eight columns where one row of x needs one. They keep apart what has scales of its
// own: a column has x for the elements of one group and zeros for all others, so that a chain of
// MMAs over all groups leaves the sum of each in a column of its own, and a scale is one
// multiply-add for 16 or 32 elements instead of a product for every pair. A lane has the rows r and
// r + 8 for r = lane / 4, of each a quarter of a span, two chunks of 16 bytes that follow each
// other; the results of the groups that it has read are its own too (docs/findings/gpu-gemv.md).
#pragma once
#include "hw/convert_fp8_upper.h"
#include "hw/griddep.h"
#include "hw/mma.h"
#include "hw/tma.h"
#include "ops/product/sm90_row_x.cuh"
#include "pipe/named_barrier.h"

namespace halftone::product {

template <GpuCode kCode, Sm90RowScales kScales>
struct Sm90Row {
  using Params = Sm90RowParams;
  using Stages = Sm90RowStages<kCode, kScales>;
  using Policy = CodePolicy<kCode>;
  using Ring = typename Stages::Ring;
  using SumRing = typename Stages::SumRing;
  static constexpr uint32_t kThreads = Stages::kThreads, kMinBlocks = Stages::kMinBlocks;
  static constexpr uint32_t kWarps = Stages::kWarps, kBits = Stages::kBits;
  static constexpr uint32_t kSpan = Stages::kSpan, kDepth = Stages::kDepth, kRows = Stages::kRows;
  static constexpr hw::Type kType =
      Stages::kTwoParts || kCode == GpuCode::f16 ? hw::Type::f16 : hw::Type::bf16;
  static constexpr bool kLanes = kScales >= Sm90RowScales::powers;
  enum class Barrier { multipliers, count };

  HT_DEVICE static void sync(hw::Site site = hw::Site::current()) {
    pipe::sync<Barrier::multipliers>(kWarps * 32, site);
  }
  HT_DEVICE static uint32_t outputs(const GpuProduct& p) { return p.finish.gate ? 8 : 16; }

  // Fills a quarter of the ring and more before x has been read: copies that wait in the memory's
  // queues would make x wait behind them.
  static constexpr uint32_t kEarly = 2;

  HT_DEVICE static void load(const Params& params, const Ring& ring, hw::Mbarrier x_read,
                             hw::SharedAddress base, uint32_t tiles) {
    const GpuProduct& p = params.product;
    if (!p.constant_weight) hw::griddepcontrol_wait();
    const uint32_t chunks = (params.spans + kWarps - 1) / kWarps;
    auto fill = ring.producer();
    uint32_t filled = 0;
    for (uint32_t tile = hw::block_index().x; tile < tiles; tile += hw::grid_size().x) {
      const auto row = static_cast<int32_t>(tile * outputs(p));
      const int32_t rows[2] = {row, p.finish.gate ? row : row + 8};
      for (uint32_t c = 0; c < chunks; ++c) {
        if (filled++ == kEarly) hw::mbarrier_wait(x_read, 0);
        const pipe::Slot slot = fill.acquire();
        const hw::SharedAddress to = base + slot.stage * Stages::kBytes;
        HT_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t source = p.finish.gate ? half : 0;
          hw::tensor_load(to + half * Stages::kHalf, &params.w[source],
                          {0, rows[half], static_cast<int32_t>(c * kWarps)}, slot.full,
                          hw::kEvictFirst);
          if constexpr (Stages::kCopied) {
            hw::tensor_load(
                to + (2 * Stages::kHalf + half * Stages::kScaleHalf), &params.scales[source],
                {static_cast<int32_t>(c * kWarps * 16), rows[half]}, slot.full, hw::kEvictFirst);
          }
        }
      }
    }
  }

  // The scales of a lane's elements in a span: of both its rows one for 32 elements.
  struct LaneScales {
    static constexpr uint32_t kEach = kBits == 4 ? 2 : 1;
    const uint8_t* row[2] = {};
    uint32_t next[2][kEach] = {};

    HT_DEVICE void find(const GpuProduct& p, uint32_t tile) {
      const uint32_t first = tile * outputs(p) + hw::lane_index() / 4;
      const bool gate = p.finish.gate;
      row[0] = scale_address(p.weight, p.source[0], first < p.n ? first : p.n - 1, 0);
      const uint32_t second = gate ? first : first + 8;
      row[1] = scale_address(p.weight, p.source[gate ? 1 : 0], second < p.n ? second : p.n - 1, 0);
    }
    // Those of a span, which a warp asks for a stage ahead.
    HT_DEVICE void ask(const Params& params, uint32_t span, hw::Site site = hw::Site::current()) {
      if (span >= params.spans) return;
      const auto step = static_cast<uint32_t>(params.product.weight.scale_step);
      const uint32_t k = span * kDepth + hw::lane_index() % 4 * (kDepth / 4);
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) {
        const uint32_t at = ((k + i * 32) >> params.log2_group) * step;
        HT_UNROLL
        for (uint32_t r = 0; r < 2; ++r) next[r][i] = load(row[r] + at, site);
      }
    }
    HT_DEVICE static uint32_t load(const uint8_t* at, hw::Site site) {
      if constexpr (kScales == Sm90RowScales::powers) return hw::load_global(at, site);
      if constexpr (kScales == Sm90RowScales::halves) {
        return hw::load_global(reinterpret_cast<const uint16_t*>(at), site);
      } else {
        return hw::load_global(reinterpret_cast<const uint32_t*>(at), site);
      }
    }
    HT_DEVICE float scale(const Params& params, uint32_t r, uint32_t i) const {
      const uint32_t code = next[r][i];
      // 2^(code - 127); 0 is subnormal, 255 NaN: both have the upper bit of the mantissa.
      if constexpr (kScales == Sm90RowScales::powers) {
        return std::bit_cast<float>(code << 23 | (code - 1 < 254 ? 0 : 0x400000));
      }
      if constexpr (kScales == Sm90RowScales::halves) {
        return params.product.weight.scale_format == Format::f16
                   ? hw::cvt_f32_f16(static_cast<uint16_t>(code))
                   : std::bit_cast<float>(code << 16);
      }
      return std::bit_cast<float>(code);
    }
  };

  // Two codes each, as operands.
  HT_DEVICE static void operands(const uint32_t (&codes)[4], uint32_t (&pairs)[4 * 16 / kBits]) {
    HT_UNROLL
    for (uint32_t w = 0; w < 4; ++w) {
      const uint32_t word = codes[w];
      if constexpr (kBits == 16) {
        pairs[w] = word;
      } else if constexpr (kCode == GpuCode::e4m3 || kCode == GpuCode::e5m2) {
        constexpr hw::Type kFp8 = kCode == GpuCode::e4m3 ? hw::Type::e4m3 : hw::Type::e5m2;
        pairs[2 * w] = hw::cvt_f16x2_fp8x2<kFp8>(static_cast<uint16_t>(word));
        pairs[2 * w + 1] = hw::cvt_f16x2_fp8x2_upper<kFp8>(word);
      } else if constexpr (kCode == GpuCode::int8) {
        // 1024 + 128 + the code, less 1024 + 128.
        const uint32_t positive = word ^ 0x80808080u;
        pairs[2 * w] =
            hw::add_pair<hw::Type::f16x2>(hw::prmt(positive, 0x64646464, 0x4140), 0xe480e480);
        pairs[2 * w + 1] =
            hw::add_pair<hw::Type::f16x2>(hw::prmt(positive, 0x64646464, 0x4342), 0xe480e480);
      } else {
        uint32_t four[1][4];
        if constexpr (kCode == GpuCode::e2m1) {
          Policy::places({word}, four[0]);
        } else {
          Policy::expand({word}, Policy::kUnscaled, four);
        }
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) pairs[4 * w + i] = four[0][i];
      }
    }
  }

  // Where a lane reads x: its column's elements, or zeros.
  struct Columns {
    hw::SharedAddress at[2];  // of the first 16 codes of 4 bits and of the others; else the same
    uint32_t step[2];         // to the next span

    HT_DEVICE Columns(hw::SharedAddress x, hw::SharedAddress zeros, uint32_t k) {
      const uint32_t column = hw::lane_index() / 4, quad = hw::lane_index() % 4;
      constexpr uint32_t kOfSpan = kDepth * 2;
      const hw::SharedAddress own = x + quad * (kOfSpan / 4);
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        bool mine = true;
        hw::SharedAddress from = own;
        if constexpr (kBits == 4) {
          mine = column == 2 * quad + i;
          at[i] = mine ? own : zeros + 32;
        } else if constexpr (kBits == 8) {
          mine = column / 2 == quad;
          if (column % 2 != 0) from = own + Stages::second_part(k);
          at[i] = mine ? from : zeros + (32 + column / 2 % 2 * 64);
        } else {
          at[i] = Stages::kTwoParts && column % 2 != 0 ? own + Stages::second_part(k) : own;
        }
        step[i] = mine ? kOfSpan : 0;
      }
    }
  };

  // A span. The sums of the lane's two rows.
  HT_DEVICE static void multiply(const Params& params, hw::SharedAddress stage, uint32_t warp,
                                 const hw::SharedAddress (&x)[2], const LaneScales& scales,
                                 float (&sums)[2], hw::Site site = hw::Site::current()) {
    const uint32_t row = hw::lane_index() / 4, quad = hw::lane_index() % 4;
    const uint32_t place = warp * 8 * kSpan + row * kSpan + ((2 * quad) ^ row) * 16;
    uint32_t four[2] = {};  // scales
    if constexpr (Stages::kCopied) {
      HT_UNROLL
      for (uint32_t r = 0; r < 2; ++r) {
        four[r] =
            hw::load_shared<uint32_t>(stage + (2 * Stages::kHalf + r * Stages::kScaleHalf +
                                               row * kWarps * 16 + (warp ^ row) * 16 + quad * 4),
                                      site);
      }
    }
    float part[4] = {};
    HT_UNROLL
    for (uint32_t chunk = 0; chunk < 2; ++chunk) {
      uint32_t pairs[2][4 * 16 / kBits];
      HT_UNROLL
      for (uint32_t r = 0; r < 2; ++r) {
        const auto words =
            hw::load_shared<hw::Words4>(stage + ((place ^ chunk * 16) + r * Stages::kHalf), site);
        operands({words[0], words[1], words[2], words[3]}, pairs[r]);
      }
      HT_UNROLL
      for (uint32_t o = 0; o < 16 / kBits; ++o) {  // octets
        const auto b =
            hw::load_shared<hw::Words4>(x[o / 2] + (chunk * (16 / kBits) + o) * 16, site);
        HT_UNROLL
        for (uint32_t i = 0; i < 4; i += 2) {
          const uint32_t at = o * 4 + i;
          hw::mma_m16n8k16<kType>(part,
                                  {pairs[0][at], pairs[1][at], pairs[0][at + 1], pairs[1][at + 1]},
                                  {b[i], b[i + 1]}, part, site);
        }
      }
      if constexpr (kBits == 4) {
        HT_UNROLL
        for (uint32_t r = 0; r < 2; ++r) {
          if constexpr (Stages::kCopied) {
            const uint32_t halves =
                chunk == 0 ? hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(static_cast<uint16_t>(four[r]))
                           : hw::cvt_f16x2_fp8x2_upper<hw::Type::e4m3>(four[r]);
            sums[r] = hw::fma(part[2 * r], hw::cvt_f32_f16(static_cast<uint16_t>(halves)), sums[r]);
            sums[r] = hw::fma(part[2 * r + 1], hw::cvt_f32_f16(static_cast<uint16_t>(halves >> 16)),
                              sums[r]);
          } else {
            sums[r] =
                hw::fma(part[2 * r] + part[2 * r + 1], scales.scale(params, r, chunk), sums[r]);
          }
          part[2 * r] = part[2 * r + 1] = 0;
        }
      }
    }
    if constexpr (kBits > 4) {
      HT_UNROLL
      for (uint32_t r = 0; r < 2; ++r) {
        float sum = part[2 * r];
        if constexpr (Stages::kTwoParts) sum = hw::fma(part[2 * r + 1], 0x1p-33f, sum);
        sums[r] = kLanes ? hw::fma(sum, scales.scale(params, r, 0), sums[r]) : sums[r] + sum;
      }
    }
  }

  // Results of the sums of all warps, by a warp of its own: loads of scales, bias and residual hold
  // nobody up.
  HT_DEVICE static void finish_all(const Params& params, const SumRing& ring,
                                   hw::SharedAddress base, uint32_t tiles) {
    const GpuProduct& p = params.product;
    const uint32_t lane = hw::lane_index();
    hw::griddepcontrol_wait();
    auto read = ring.consumer();
    for (uint32_t tile = hw::block_index().x; tile < tiles; tile += hw::grid_size().x) {
      const hw::SharedAddress sums = base + (Stages::kSums + read.wait() * Stages::kSumBytes);
      const auto exponent = hw::load_shared<int32_t>(base + Stages::kExponent);
      const uint32_t n = tile * outputs(p) + lane;
      float whole[2] = {};
      if (lane < outputs(p)) {
        HT_UNROLL
        for (uint32_t w = 0; w < kWarps; ++w) {
          whole[0] += hw::load_shared<float>(sums + (w * kRows + lane) * 4);
        }
        if (p.finish.gate) {
          HT_UNROLL
          for (uint32_t w = 0; w < kWarps; ++w) {
            whole[1] += hw::load_shared<float>(sums + (w * kRows + lane + 8) * 4);
          }
        }
      }
      hw::warp_sync();
      read.release(lane == 0);
      if (lane < outputs(p) && n < p.n) {
        finish_output(p.finish, p.weight, p.source[0], p.source[1], 0, 0, 0, n,
                      scaled_by(whole[0], exponent), scaled_by(whole[1], exponent));
      }
    }
  }

  HT_DEVICE static void multiply_all(const Params& params, const Ring& ring,
                                     const SumRing& sum_ring, hw::Mbarrier x_read,
                                     hw::SharedAddress base, uint32_t tiles) {
    const GpuProduct& p = params.product;
    const uint32_t warp = hw::warp_index(), lane = hw::lane_index(), grid = hw::grid_size().x;
    uint32_t tile = hw::block_index().x;
    LaneScales scales;
    const auto begin_scales = [&](uint32_t of_tile) {
      if constexpr (kLanes) {
        scales.find(p, of_tile);
        scales.ask(params, warp);
      }
    };
    if (p.constant_weight) begin_scales(tile);
    hw::griddepcontrol_wait();
    if (!p.constant_weight) begin_scales(tile);
    Sm90RowX<Stages, kCode> row(p);
    hw::warp_sync();
    if (lane == 0) hw::mbarrier_arrive(x_read);
    if (hw::thread_index().x < Stages::kZeroBytes / 16) {
      hw::store_shared(base + (Stages::kZeros + hw::thread_index().x * 16), hw::Words4{});
    }
    const hw::SharedAddress x = base + Stages::kX;
    row.place(x, base + Stages::kMaxima, p.k, [] { sync(); });
    if (hw::thread_index().x == 0) {
      hw::store_shared(base + Stages::kExponent, row.exponent());
    }
    sync();

    const Columns columns(x, base + Stages::kZeros, p.k);
    const uint32_t chunks = (params.spans + kWarps - 1) / kWarps;
    auto read = ring.consumer();
    auto fill = sum_ring.producer();
    while (tile < tiles) {
      float sums[2] = {};
      const uint32_t next = tile + grid;
      HT_ROLLED
      for (uint32_t c = 0; c < chunks; ++c) {
        const uint32_t span = c * kWarps + warp;
        const LaneScales now = scales;
        if (c + 1 == chunks) {
          if (next < tiles) begin_scales(next);
        } else if constexpr (kLanes) {
          scales.ask(params, span + kWarps);
        }
        const hw::SharedAddress stage = base + read.wait() * Stages::kBytes;
        if (span < params.spans) {
          const hw::SharedAddress from[2] = {columns.at[0] + span * columns.step[0],
                                             columns.at[1] + span * columns.step[1]};
          multiply(params, stage, warp, from, now, sums);
        }
        // Read by loads, filled by copies.
        hw::fence_proxy_async_shared();
        hw::warp_sync();
        read.release(lane == 0);
      }
      const pipe::Slot slot = fill.wait();
      const hw::SharedAddress at = base + (Stages::kSums + slot.stage * Stages::kSumBytes);
      HT_UNROLL
      for (uint32_t r = 0; r < 2; ++r) {
        if constexpr (kBits <= 8) {
          sums[r] += hw::shuffle_xor(sums[r], 1);
          sums[r] += hw::shuffle_xor(sums[r], 2);
        }
        if (lane % 4 == 0) {
          hw::store_shared(at + (warp * kRows + lane / 4 + r * 8) * 4, sums[r]);
        }
      }
      hw::warp_sync();
      if (lane == 0) fill.commit(slot);
      tile = next;
    }
  }

  HT_DEVICE static void run(const Params& params) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const Ring ring{base + Stages::kBarriers};
    const SumRing sum_ring{base + Stages::kSumBarriers};
    const hw::Mbarrier x_read{base + Stages::kXRead};
    const uint32_t n = params.product.n, of_tile = outputs(params.product);
    const uint32_t tiles = (n + of_tile - 1) / of_tile;
    if (hw::thread_index().x == 0) {
      ring.init(1, kWarps);
      sum_ring.init(kWarps, 1);
      sum_ring.name("sums_full", "sums_empty");
      hw::mbarrier_init(x_read, kWarps);
      hw::name_mbarrier(x_read, "x_read", 0);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    // All blocks have their places: those of the next kernel may take what is left.
    hw::griddepcontrol_launch_dependents();
    if (hw::warp_index() < kWarps) {
      multiply_all(params, ring, sum_ring, x_read, base, tiles);
    } else if (hw::warp_index() > kWarps) {
      finish_all(params, sum_ring, base, tiles);
    } else if (hw::lane_index() == 0) {
      load(params, ring, x_read, base, tiles);
    }
  }
};

}  // namespace halftone::product

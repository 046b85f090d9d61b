// The end of a tile on Hopper. A warpgroup has 64 rows of W by kColumns rows of x in registers, a
// row of W in the lanes of a quad; memory wants neighbouring outputs beside one another. So results
// pass through shared memory: as bf16 or f16 on to the copy engine where that is all, or as f32 to
// threads that finish whole rows in any way (gpu_finish.h).
#pragma once
#include "hw/cluster.h"
#include "hw/fence.h"
#include "hw/stmatrix.h"
#include "hw/tma.h"
#include "ops/product/sm90_stages.h"
#include "pipe/named_barrier.h"
#include "tile/swizzle.h"

namespace halftone::product {

enum class Sm90Barrier { first_group, second_group, both, count };

template <class Stages>
struct Sm90Finish {
  using Tile = typename Stages::Tile;
  static constexpr uint32_t kColumns = Stages::kColumns, kPiece = Stages::kPiece;
  static constexpr uint32_t kThreads = 128;  // of a warpgroup

  const Sm90Params& params;
  const GpuProduct& p;
  hw::SharedAddress base;
  uint32_t group, warp, lane, thread;  // warpgroup; the others within it

  HT_DEVICE Sm90Finish(const Sm90Params& all, hw::SharedAddress shared)
      : params(all), p(all.product), base(shared) {
    thread = hw::thread_index().x % kThreads, group = hw::warp_index() / 4 - 1;
    warp = thread / 32, lane = thread % 32;
  }

  HT_DEVICE void sync(hw::Site site = hw::Site::current()) const {
    pipe::sync<Sm90Barrier::first_group, Sm90Barrier::second_group>(group, kThreads, site);
  }
  HT_DEVICE hw::SharedAddress staging() const {
    return base + (Stages::kOut + group * Stages::kStaging);
  }

  // Where sums lie as f32 [column][row], and what multiplies and joins those of this warpgroup.
  struct Area {
    hw::SharedAddress sums, factors;
    uint32_t pitch;
  };
  // After the sums of the staging area: scales of 64 rows, and biases.
  HT_DEVICE hw::SharedAddress factors() const { return staging() + kPiece * Stages::kPieceRow; }
  HT_DEVICE void store_factors(const Tile& t) const {
    const uint32_t r = thread % 64, half = t.half_of(r);
    const uint32_t width = t.gate ? 32 : 64, n = t.n0 + group * width + r % width;
    float factor = 0;
    if (n < p.n) {
      if (thread < 64) {
        factor = row_scale(p.weight, t.source_of(r), n) * p.factor;
      } else if (const char* bias = p.finish.bias[half]; bias != nullptr) {
        factor = pipe::load_element(
            p.finish.bias_format, bias + t.expert * p.finish.bias_expert + n * p.finish.bias_step);
      }
    }
    hw::store_shared(factors() + thread * 4, factor);
  }

  HT_DEVICE void tile(const Tile& t, const float (&sums)[kColumns / 2]) const {
    if constexpr (Stages::kCanCopyOut) {
      if (params.copies_out) return copy_out(t, sums);
    }
    sync();  // the tile before has been read
    store_factors(t);
    const Area area{staging(), factors(), Stages::kPieceRow};
    HT_ROLLED
    for (uint32_t piece = 0; piece < kColumns / kPiece; ++piece) {
      if (t.m0 + piece * kPiece >= t.end) break;
      if (piece > 0) sync();
      HT_UNROLL
      for (uint32_t i = 0; i < kColumns / kPiece; ++i) {
        if (i == piece) store_sums<kPiece>(sums + i * kPiece / 2, area);
      }
      sync();
      finish_rows(t, area, 0, kPiece, t.m0 + piece * kPiece, 1);
    }
  }

  // Columns of a thread's sums to the area.
  template <uint32_t kCount>
  HT_DEVICE void store_sums(const float* sums, const Area& area,
                            hw::Site site = hw::Site::current()) const {
    HT_UNROLL
    for (uint32_t j = 0; j < kCount / 8; ++j) {
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t column = j * 8 + lane % 4 * 2 + e % 2;
        const uint32_t row = warp * 16 + lane / 4 + e / 2 * 8;
        hw::store_shared(area.sums + (column * area.pitch + row * 4), sums[j * 4 + e], site);
      }
    }
  }

  // Each block of the cluster has the sums of its part of K, and finishes its share of the rows of
  // x: the parts are added in their order. The factors are there.
  HT_DEVICE void split_tile(const Tile& t, const float (&sums)[kColumns / 2]) const {
    pipe::sync<Sm90Barrier::both>(2 * kThreads);  // nobody reads the stages any more
    const Area area{base + group * 64 * 4, factors(), Stages::kSumRow};
    store_sums<kColumns>(sums, area);
    hw::cluster_arrive();
    hw::cluster_wait();
    const uint32_t share = (kColumns + params.split - 1) / params.split;
    const uint32_t first = hw::cluster_rank() * share;
    const uint32_t end = first + share < kColumns ? first + share : kColumns;
    finish_rows(t, area, first, end - first, t.m0 + first, params.split);
  }

  // Columns [first, first + count) of the area, rows of x from m0 on; eight outputs a thread.
  HT_DEVICE void finish_rows(const Tile& t, const Area& area, uint32_t first, uint32_t count,
                             uint32_t m0, uint32_t parts) const {
    const uint32_t width = t.gate ? 32 : 64, ranks = width / 8, rank = thread % ranks;
    // Of a gate the eight lanes that read together have rows four apart: other banks.
    const uint32_t row = t.gate ? warp * 8 + lane / 8 + lane / 4 % 2 * 4 : thread / 8;
    const pipe::Quads q = pipe::quads_of(Format::f32, rank, ranks, 0);
    for (uint32_t i = row; i < count; i += kThreads / ranks) {
      const uint32_t m = m0 + i;
      if (m >= t.end) return;
      const hw::SharedAddress at = area.sums + (first + i) * area.pitch;
      float x[8], up[8] = {};
      load_sums(at, q, parts, x);
      if (t.gate) load_sums(at + 32 * 4, q, parts, up);
      finish_eight(t, area.factors, q, m, t.n0 + group * width, x, up);
    }
  }
  HT_DEVICE static void load_quads(hw::SharedAddress at, const pipe::Quads& q, float (&x)[8],
                                   hw::Site site = hw::Site::current()) {
    using Quad = hw::Vector<float, 4>;
    const Quad first = hw::load_shared<Quad>(at + static_cast<uint32_t>(q.first) * 4, site);
    const Quad second = hw::load_shared<Quad>(at + static_cast<uint32_t>(q.second) * 4, site);
    HT_UNROLL
    for (uint32_t e = 0; e < 4; ++e) x[e] = first[e], x[4 + e] = second[e];
  }
  HT_DEVICE static void load_sums(hw::SharedAddress at, const pipe::Quads& q, uint32_t parts,
                                  float (&x)[8], hw::Site site = hw::Site::current()) {
    if (parts == 1) return load_quads(at, q, x, site);
    using Quad = hw::Vector<float, 4>;
    HT_UNROLL
    for (uint32_t e = 0; e < 8; ++e) x[e] = 0;
    HT_UNROLL
    for (uint32_t part = 0; part < 8; ++part) {
      if (part >= parts) break;
      const hw::ClusterAddress from = hw::map_shared_rank(at, part, site);
      const Quad first = hw::load_cluster<Quad>(from + static_cast<uint32_t>(q.first) * 4, site);
      const Quad second = hw::load_cluster<Quad>(from + static_cast<uint32_t>(q.second) * 4, site);
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) x[e] += first[e], x[4 + e] += second[e];
    }
  }

  // As finish_output, of eight outputs from n0 on at once.
  HT_DEVICE void finish_eight(const Tile& t, hw::SharedAddress factors, const pipe::Quads& q,
                              uint32_t m, uint32_t n0, float (&x)[8], float (&up)[8]) const {
    const GpuFinish& f = p.finish;
    float x_scale = f.row_scales != nullptr ? hw::load_global(f.row_scales + m) : 1.0f;
    if (f.row_weights != nullptr) x_scale *= hw::load_global(f.row_weights + m);
    const auto affine = [&](float(&values)[8], uint32_t first) {
      float scale[8], bias[8];
      load_quads(factors + first * 4, q, scale);
      load_quads(factors + (64 + first) * 4, q, bias);
      HT_UNROLL
      for (uint32_t e = 0; e < 8; ++e) values[e] = values[e] * scale[e] * x_scale + bias[e];
    };
    affine(x, 0);
    if (t.gate) {
      affine(up, 32);
      pipe::activate_gate<false>(f.gated, x, up);
    } else {
      pipe::activate<false>(f.activation, x);
    }
    const uint32_t size = pipe::bytes_of(f.out_format);
    const int64_t columns = int64_t{p.n} - n0;
    if (f.residual != nullptr) {
      float residual[8];
      const uint32_t of_residual = pipe::bytes_of(f.residual_format);
      pipe::load_eight(f.residual_format, f.residual + m * f.residual_row + n0 * of_residual, q,
                       columns, residual);
      HT_UNROLL
      for (uint32_t e = 0; e < 8; ++e) x[e] += residual[e];
    }
    pipe::store_eight(f.out_format, f.out + m * f.out_row + n0 * size, q, columns, x);
  }

  // Scales and bias, rounding, and 64 outputs of 32 rows at a time to the copy engine.
  HT_DEVICE void copy_out(const Tile& t, const float (&sums)[kColumns / 2]) const {
    const GpuFinish& f = p.finish;
    float scale[2], bias[2];
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t n = t.n0 + group * 64 + warp * 16 + lane / 4 + half * 8;
      scale[half] = n < p.n ? row_scale(p.weight, t.source[0], n) * p.factor : 0;
      bias[half] = n < p.n && f.bias[0] != nullptr
                       ? pipe::load_element(f.bias_format, f.bias[0] + n * f.bias_step)
                       : 0;
    }
    HT_UNROLL
    for (uint32_t piece = 0; piece < kColumns / kPiece; ++piece) {
      const hw::SharedAddress buffer = staging() + piece % 2 * Stages::kPieceBytes;
      if (thread == 0) hw::bulk_wait_read<1>();  // the copy before the last has read it
      sync();
      HT_UNROLL
      for (uint32_t j = 0; j < kPiece / 8; j += 2) {
        uint32_t packed[4];  // of columns j and j + 1, each rows r and r + 8
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const float* v = sums + piece * kPiece / 2 + (j + i / 2) * 4 + i % 2 * 2;
          float x[2] = {1, 1};
          if (f.row_scales != nullptr) {
            const uint32_t m = t.m0 + piece * kPiece + (j + i / 2) * 8 + lane % 4 * 2;
            HT_UNROLL
            for (uint32_t e = 0; e < 2; ++e) {
              if (m + e < p.m) x[e] = hw::load_global(f.row_scales + m + e);
            }
          }
          packed[i] =
              pipe::narrow_pair(f.out_format, hw::fma(v[0] * scale[i % 2], x[0], bias[i % 2]),
                                hw::fma(v[1] * scale[i % 2], x[1], bias[i % 2]));
        }
        // Lane l has the address of row l % 8 of matrix l / 8: 8 outputs of a row of x.
        const uint32_t m = (j + lane / 16) * 8 + lane % 8, chunk = warp * 2 + lane / 8 % 2;
        hw::stmatrix_trans(buffer + (m * 128 + ((chunk ^ (m % 8)) * 16)), packed);
      }
      hw::fence_proxy_async_shared();
      sync();
      if (thread == 0) {
        hw::tensor_store(
            &params.out,
            {static_cast<int32_t>(t.n0 + group * 64), static_cast<int32_t>(t.m0 + piece * kPiece)},
            buffer);
        hw::bulk_commit();
      }
    }
  }
  // Before the block ends, and its shared memory with it.
  HT_DEVICE void drain() const {
    if (thread == 0) hw::bulk_wait_read<0>();
  }
};

}  // namespace halftone::product

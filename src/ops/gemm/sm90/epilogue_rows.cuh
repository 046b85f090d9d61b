// The epilogue by rows of the GEMMs on sm_90a, where TMA does not store the tile: sums are staged
// in shared memory as FP32, and the 128 threads of a warpgroup finish rows of x, eight outputs a
// thread, with any epilogue (sm80/epilogue.h) or, for the common ones, in few instructions.
#pragma once
#include "hw/cluster.h"
#include "hw/thread.h"
#include "ops/gemm/sm90/tile.cuh"

namespace halftone::gemm {

// Sums of 64 rows of W in shared memory, [row of x][row of W] as FP32, and their scales and biases:
// 64 scales, then 64 biases.
struct Sm90StagedTile {
  hw::SharedAddress sums, scale_bias;
  uint32_t pitch;          // bytes from a row of x to the next
  uint32_t bank_distance;  // rows so far apart that 16 words of one and 16 of the other fall into
                           // all banks
  uint32_t panel;          // which 64 rows of W of the tile
};
inline constexpr uint32_t kSm90ScaleBiasBytes = 2 * 64 * 4;  // bytes of a panel's scales and biases

// Which specialised epilogues a kernel instantiates. Gated ones take some 32 registers more than
// the general one; where there are none left, spills cost more than is won.
enum class EpilogueSet { none, ungated, all };

struct Sm90EpilogueRows {
  static constexpr uint32_t kThreads = 128;  // of a warpgroup

  const GpuGemm& p;
  uint32_t warp, lane, thread;  // within the warpgroup
  // The outputs and bias of this GEMM, where a launch fuses several (sm90/fused_gemms.h); the bias
  // of the up half of a gate is in the params.
  uint32_t n_end;
  char* out;
  int64_t out_row;
  const char* bias;

  HT_DEVICE explicit Sm90EpilogueRows(const GpuGemm& gemm)
      : p(gemm),
        n_end(gemm.n),
        out(gemm.epilogue.out),
        out_row(gemm.epilogue.out_row),
        bias(gemm.epilogue.bias[0]) {
    thread = hw::thread_index().x % kThreads;
    warp = thread / 32, lane = thread % 32;
  }

  // This thread's value of a panel: first scales, then biases. kScaled: rows of W may have scales.
  template <bool kScaled = true>
  HT_DEVICE float load_scale_bias(const Sm90Tile& t, uint32_t panel) const {
    const uint32_t r = thread % 64, half = t.half_of(r);
    const uint32_t width = t.gate ? 32 : 64, n = t.n0 + panel * width + r % width;
    if (n >= n_end) return 0;
    if (thread < 64) {
      if constexpr (!kScaled) return p.alpha;
      return row_scale(p.weight, t.source_of(r), n) * p.alpha;
    }
    const char* of_half = half == 0 ? bias : p.epilogue.bias[1];
    if (of_half == nullptr) return 0;
    return pipe::load_element(p.epilogue.bias_format, of_half + t.expert * p.epilogue.bias_expert +
                                                          n * p.epilogue.bias_step);
  }
  HT_DEVICE void store_scale_bias(hw::SharedAddress to, float value,
                                  hw::Site site = hw::Site::current()) const {
    hw::store_shared(to + thread * 4, value, site);
  }
  template <bool kScaled = true>
  HT_DEVICE void stage_scale_bias(const Sm90Tile& t, hw::SharedAddress to, uint32_t panel) const {
    store_scale_bias(to, load_scale_bias<kScaled>(t, panel));
  }

  // The general epilogue: rows [first, first + count) of the staged tile, of x from m0 on, eight
  // outputs a thread. With split-K over `splits` CTAs of a cluster the sums of each are added. A
  // kernel that runs it once, or for few rows, calls store_rows instead.
  HT_DEVICE void generic_rows(const Sm90Tile& t, const Sm90StagedTile& staged, uint32_t first,
                              uint32_t count, uint32_t m0, uint32_t splits) const {
    const ThreadRows mine(*this, t.gate, staged);
    const uint32_t n0 = t.n0 + staged.panel * mine.width;
    for (uint32_t i = mine.row; i < count; i += mine.step) {
      if (m0 + i >= t.end) return;
      generic_eight(mine.q, t.gate, m0 + i, n0, staged.sums + (first + i) * staged.pitch,
                    staged.scale_bias, splits);
    }
  }
  // The same, by a specialised epilogue where there is one and the kernel has registers for it.
  template <EpilogueSet kSet = EpilogueSet::all>
  HT_DEVICE void store_rows(const Sm90Tile& t, const Sm90StagedTile& staged, uint32_t first,
                            uint32_t count, uint32_t m0, uint32_t splits) const {
    constexpr bool kHasGated = kSet == EpilogueSet::all;
    const uint32_t left = t.end > m0 ? t.end - m0 : 0, used = count < left ? count : left;
    if (kSet == EpilogueSet::none || p.epilogue.specialised == SpecialisedEpilogue::none ||
        (!kHasGated && t.gate)) {
      generic_rows(t, staged, first, used, m0, splits);
    } else if constexpr (kSet != EpilogueSet::none) {
      if (t.gate) {
        if constexpr (kHasGated) specialised_rows<true, true>(t, staged, first, used, m0, splits);
      } else if (p.epilogue.residual != nullptr) {
        specialised_rows<false, true>(t, staged, first, used, m0, splits);
      } else {
        specialised_rows<false, false>(t, staged, first, used, m0, splits);
      }
    }
  }

 private:
  // A thread's rows of a staged tile: the first, the step to the next, and its eight outputs of
  // each.
  struct ThreadRows {
    uint32_t width, row, step;
    pipe::Quads q;

    HT_DEVICE ThreadRows(const Sm90EpilogueRows& of, bool gate, const Sm90StagedTile& staged)
        : width(gate ? 32 : 64),
          step(kThreads * 8 / width),
          q(pipe::quads_of(Format::f32, of.thread % (width / 8), width / 8, 0)) {
      // With a gate the eight lanes that read together cover two rows.
      const uint32_t of_eight = of.lane / 8, bank_distance = staged.bank_distance;
      const uint32_t gated_row = of.warp * 8 + of_eight % bank_distance +
                                 (of_eight / bank_distance * 2 + of.lane / 4 % 2) * bank_distance;
      row = gate ? gated_row : of.thread / 8;
    }
  };
  // Scales and biases of eight outputs: of the rows of W from `first` of the panel on.
  struct Affine {
    float scale[8], bias[8];

    HT_DEVICE Affine(hw::SharedAddress scale_bias, const pipe::Quads& q, uint32_t first) {
      load_quads(scale_bias + first * 4, q, scale);
      load_quads(scale_bias + (64 + first) * 4, q, bias);
    }
    HT_DEVICE void apply(float x_scale, float (&x)[8]) const {
      HT_UNROLL
      for (uint32_t e = 0; e < 8; ++e) x[e] = x[e] * scale[e] * x_scale + bias[e];
    }
  };
  HT_DEVICE float x_scale_of(uint32_t m) const {
    const GpuEpilogue& f = p.epilogue;
    float value =
        f.row_scales != nullptr ? hw::load_global(f.row_scales + m * f.row_scale_step) : 1.0f;
    if (f.row_weights != nullptr) value *= hw::load_global(f.row_weights + m);
    return value;
  }

  // Specialised epilogue: scales, bias, optional SwiGLU, optional 16-bit residual, 16-bit outputs.
  template <bool kGate, bool kResidual>
  HT_DEVICE void specialised_rows(const Sm90Tile& t, const Sm90StagedTile& staged, uint32_t first,
                                  uint32_t count, uint32_t m0, uint32_t splits) const {
    using Pair = hw::Vector<uint32_t, 2>;
    const GpuEpilogue& f = p.epilogue;
    const ThreadRows mine(*this, kGate, staged);
    const uint32_t n0 = t.n0 + staged.panel * mine.width;
    for (uint32_t i = mine.row; i < count; i += mine.step) {
      const uint32_t m = m0 + i;
      const float x_scale = x_scale_of(m);
      const hw::SharedAddress sums = staged.sums + (first + i) * staged.pitch;
      float x[8];
      load_sums(sums, mine.q, splits, x);
      Affine(staged.scale_bias, mine.q, 0).apply(x_scale, x);
      if constexpr (kGate) {
        float up[8];
        load_sums(sums + 32 * 4, mine.q, splits, up);
        Affine(staged.scale_bias, mine.q, 32).apply(x_scale, up);
        pipe::activate<false>(GatedActivation::swiglu().function, x);
        HT_UNROLL
        for (uint32_t e = 0; e < 8; ++e) x[e] = x[e] * up[e];
      }
      HT_UNROLL
      for (uint32_t e = 0; e < 8; e += 4) {
        const auto n = n0 + static_cast<uint32_t>(e == 0 ? mine.q.first : mine.q.second);
        if (n >= n_end) continue;
        if (kResidual && f.residual != nullptr) {
          const auto words = hw::load_global(
              reinterpret_cast<const Pair*>(f.residual + m * f.residual_row + n * 2));
          HT_UNROLL
          for (uint32_t j = 0; j < 2; ++j) {
            float two[2];
            pipe::widen_pair(f.residual_format, words[j], two[0], two[1]);
            x[e + 2 * j] += two[0], x[e + 2 * j + 1] += two[1];
          }
        }
        const Pair words{{pipe::narrow_pair(f.out_format, x[e], x[e + 1]),
                          pipe::narrow_pair(f.out_format, x[e + 2], x[e + 3])}};
        hw::store_global(reinterpret_cast<Pair*>(out + m * out_row + n * 2), words);
      }
    }
  }
  // Any epilogue of eight outputs, as epilogue_output.
  HT_DEVICE void generic_eight(const pipe::Quads& q, bool gate, uint32_t m, uint32_t n0,
                               hw::SharedAddress sums, hw::SharedAddress scale_bias,
                               uint32_t splits) const {
    const GpuEpilogue& f = p.epilogue;
    const float x_scale = x_scale_of(m);
    float x[8];
    load_sums(sums, q, splits, x);
    Affine(scale_bias, q, 0).apply(x_scale, x);
    if (gate) {
      float up[8];
      load_sums(sums + 32 * 4, q, splits, up);
      Affine(scale_bias, q, 32).apply(x_scale, up);
      pipe::activate_gate<false>(f.gated, x, up);
    } else {
      pipe::activate<false>(f.activation, x);
    }
    const uint32_t size = pipe::bytes_of(f.out_format);
    const int64_t columns = int64_t{n_end} - n0;
    if (f.residual != nullptr) {
      float residual[8];
      const uint32_t of_residual = pipe::bytes_of(f.residual_format);
      pipe::load_eight(f.residual_format, f.residual + m * f.residual_row + n0 * of_residual, q,
                       columns, residual);
      HT_UNROLL
      for (uint32_t e = 0; e < 8; ++e) x[e] += residual[e];
    }
    pipe::store_eight(f.out_format, out + m * out_row + n0 * size, q, columns, x);
  }

  // Split-K: adds the sums of the cluster's CTAs in rank order, four loads in flight at once.
  HT_DEVICE static void load_sums(hw::SharedAddress at, const pipe::Quads& q, uint32_t splits,
                                  float (&x)[8], hw::Site site = hw::Site::current()) {
    if (splits == 1) return load_quads(at, q, x, site);
    using Quad = hw::Vector<float, 4>;
    constexpr uint32_t kAtOnce = 4;
    HT_UNROLL
    for (uint32_t e = 0; e < 8; ++e) x[e] = 0;
    HT_ROLLED
    for (uint32_t part = 0; part < splits; part += kAtOnce) {
      Quad quads[kAtOnce][2] = {};
      HT_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (part + i >= splits) continue;
        const hw::ClusterAddress from = hw::map_shared_rank(at, part + i, site);
        quads[i][0] = hw::load_cluster<Quad>(from + static_cast<uint32_t>(q.first) * 4, site);
        quads[i][1] = hw::load_cluster<Quad>(from + static_cast<uint32_t>(q.second) * 4, site);
      }
      HT_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        HT_UNROLL
        for (uint32_t e = 0; e < 8; ++e) x[e] += quads[i][e / 4][e % 4];
      }
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
};

}  // namespace halftone::gemm

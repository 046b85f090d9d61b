// The stage ring of the 4-bit small-M GEMMs on sm_90a: TMA fills a stage, two or three warps
// permute its x along K (small_m/k_permute.cuh) and arrive on a second barrier, then the consumer
// warps read it.
#pragma once
#include "hw/vote.h"
#include "ops/gemm/sm90/small_m/k_permute.cuh"
#include "ops/gemm/sm90/tile.cuh"
#include "pipe/ring.h"

namespace halftone::gemm {

// Checks whether UE8M0 scales can multiply BF16 weights exactly: bytes from 16 to 128. Several
// words are checked at a time.
struct Sm90PowerRange {
  uint32_t broken = 0;  // bits of 0x80808080

  HT_DEVICE void check(uint32_t exponents) {
    // From 15 to 127 after the subtraction. For a byte 0 the borrow changes its neighbour, but its
    // own highest bit is set.
    const uint32_t less = exponents - 0x01010101;
    broken |= less | ~((less & 0x7f7f7f7f) + 0x71717171);
  }
  HT_DEVICE bool all() const { return (broken & 0x80808080) == 0; }
};

template <GpuCode kCode, class Stages>
struct Sm90SmallMW4Ring {
  using Permute = Sm90KPermute<kCode, Stages>;
  using Ring = typename Stages::Ring;
  static constexpr bool kPowers = Stages::kScaleMode == ScaleMode::ue8m0;

  hw::SharedAddress base;
  Ring ring;

  HT_DEVICE explicit Sm90SmallMW4Ring(hw::SharedAddress shared)
      : base(shared), ring{shared + Stages::kBarriers} {}
  HT_DEVICE hw::SharedAddress stage(uint32_t i) const { return base + i * Stages::kBytes; }
  HT_DEVICE hw::Mbarrier permuted(uint32_t i) const { return {base + (Stages::kPermuted + i * 8)}; }
  HT_DEVICE hw::SharedAddress fit(uint32_t i) const { return base + (Stages::kFit + i * 4); }

  // By one thread; `producers`: arrivals that fill a stage.
  HT_DEVICE void init(uint32_t producers) const {
    ring.init(producers, Stages::kWarps);
    for (uint32_t i = 0; i < Stages::kStages; ++i) {
      hw::mbarrier_init(permuted(i), Stages::kPermuteWarps);
      if (kPowers) hw::store_shared(fit(i), 0U);  // its bytes are written by several warps
    }
    hw::fence_mbarrier_init();
  }

  // By warp `warp` of those that permute x.
  struct Permuter {
    const Sm90SmallMW4Ring& stages;
    typename Ring::Consumer read;
    uint32_t warp;

    HT_DEVICE Permuter(const Sm90SmallMW4Ring& of, uint32_t of_warp)
        : stages(of), read(of.ring.consumer()), warp(of_warp) {}
    // The next stage. `powers`: offset of a row's UE8M0 scales in it; `left`: how many a row has.
    HT_DEVICE void next(uint32_t powers = 0, uint32_t left = 8) {
      const uint32_t i = read.wait();
      if constexpr (kPowers) {
        const bool fits = warp_fits(stages.stage(i) + powers, warp, left);
        if (hw::lane_index() == 0)
          hw::store_shared(stages.fit(i) + warp, static_cast<uint8_t>(fits));
      }
      Permute::permute(stages.stage(i) + Stages::kX, warp, Stages::kPermuteWarps);
      // Written by st.shared (generic proxy); read by wgmma and overwritten by TMA (async proxy).
      hw::fence_proxy_async_shared();
      hw::warp_sync();
      if (hw::lane_index() == 0) hw::mbarrier_arrive(stages.permuted(i));
    }
  };
  // The rows of a tile that this warp checks; `left` scales of each.
  HT_DEVICE static bool warp_fits(hw::SharedAddress powers, uint32_t warp, uint32_t left,
                                  hw::Site site = hw::Site::current()) {
    Sm90PowerRange fit;
    HT_UNROLL
    for (uint32_t r = 0; r < Stages::kRows; r += 32 * Stages::kPermuteWarps) {
      if (r + warp * 32 >= Stages::kRows) break;
      const uint32_t row = (r + warp * 32 + hw::lane_index()) * Stages::kScalePitch;
      if constexpr (Stages::kScalePitch == 16) {  // 16-byte rows, as TMA boxes have them
        const uint32_t second = powers.value % 16;
        const auto both = hw::load_shared<hw::Words4>(powers + (row - second), site);
        fit.check(second != 0 ? both[2] : both[0]), fit.check(second != 0 ? both[3] : both[1]);
      } else {
        const auto words = hw::load_shared<hw::Vector<uint32_t, 2>>(powers + row, site);
        if (left >= 8) {
          fit.check(words[0]), fit.check(words[1]);
        } else {
          fit.check(low_bytes(words[0], left)),
              fit.check(left > 4 ? low_bytes(words[1], left - 4) : kFits);
        }
      }
    }
    return hw::vote_all(fit.all(), hw::kFullWarp, site);
  }
  // The lowest bytes of a word, the others replaced by values in range.
  HT_DEVICE static uint32_t low_bytes(uint32_t word, uint32_t bytes) {
    const uint32_t mask = bytes >= 4 ? ~0U : (1U << 8 * bytes) - 1;
    return (word & mask) | (kFits & ~mask);
  }
  static constexpr uint32_t kFits = 0x40404040;
  // What all permuting warps have found.
  HT_DEVICE bool all_fit(uint32_t i, hw::Site site = hw::Site::current()) const {
    constexpr uint32_t kAll = 0x010101 >> 8 * (3 - Stages::kPermuteWarps);
    return (hw::load_shared<uint32_t>(fit(i), site) & kAll) == kAll;
  }

  // By the consumer warps: waits for stages whose x is permuted.
  struct Reader {
    const Sm90SmallMW4Ring& stages;
    typename Ring::Consumer read;
    pipe::Cursor<Stages::kStages> at;

    HT_DEVICE explicit Reader(const Sm90SmallMW4Ring& of) : stages(of), read(of.ring.consumer()) {}
    HT_DEVICE uint32_t wait() {
      const uint32_t i = read.wait();
      hw::mbarrier_wait(stages.permuted(i), at.phase());
      at.advance();
      return i;
    }
    HT_DEVICE void release() {
      // Read by ld.shared and wgmma, overwritten by TMA.
      hw::fence_proxy_async_shared();
      hw::warp_sync();
      read.release(hw::lane_index() == 0);
    }
  };
};

// Group scales of a warp's 16 rows, prefetched a stage ahead: lane l has those of row l % 16, of
// the even groups of a stage or of the odd ones.
template <class Stages>
struct Sm90GroupScales {
  static constexpr uint32_t kEach = Stages::kGroups / 2;
  static constexpr uint32_t kElements = Stages::kDepth / Stages::kGroups;
  const GpuGemm& p;
  const uint32_t log2_groups, warp;
  const uint32_t lane = hw::lane_index(), odd = lane / 16;
  const uint8_t* at = nullptr;
  uint32_t raw[kEach] = {};

  HT_DEVICE Sm90GroupScales(const GpuGemm& gemm, uint32_t log2, uint32_t of_warp)
      : p(gemm), log2_groups(log2), warp(of_warp) {}
  HT_DEVICE void locate(const Sm90Tile& tile, uint32_t n) {
    if (!p.scaled) return;
    const uint32_t r = Stages::row_of(warp, lane % 16), row = tile.output(r);
    at = scale_address(p.weight, tile.source_of(r), row < n ? row : n - 1, 0);
  }
  HT_DEVICE void prefetch(uint32_t step) {
    if (at == nullptr) return;
    const GpuLayout& l = p.weight;
    HT_UNROLL
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t group = step * Stages::kGroups + i * 2 + odd;
      raw[i] = 0;  // beyond K x is zero
      if (group * kElements < p.k) {
        raw[i] = load_scale(l.scale_format, at + (group >> log2_groups) * l.scale_step);
      }
    }
  }
  HT_DEVICE void store(hw::SharedAddress stage, hw::Site site = hw::Site::current()) const {
    HT_UNROLL
    for (uint32_t i = 0; i < kEach; ++i) {
      const float scale = p.scaled ? decode_scale(p.weight.scale_format, raw[i]) : 1.0f;
      hw::store_shared(stage + Stages::scale_of(warp, lane % 16, i * 2 + odd), scale, site);
    }
  }
};

}  // namespace halftone::gemm

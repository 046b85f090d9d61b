// The fast GEMV loops from sm_80 on: whole, 16-byte aligned spans, with nothing else in the loop. A
// warp copies its spans and their scales to shared memory by cp.async some spans ahead; a lane then
// takes 16 bytes of each of two rows at once, its quarter of half a span, and the elements of x
// that go with them: the order of K within an MMA is free as long as W and x agree.
//
// Three loops. `wide`: scales that multiply the accumulator of half a span or more, and those of
// NVFP4, which multiply weights. `lanes`: the same, but each lane multiplies its weights by a UE8M0
// scale, as the MX formats have one for 32 elements. `narrow`: a quad of lanes shares 32 elements,
// an octet each, and any scales multiply their accumulator.
#pragma once
#include "hw/mma/mma.h"
#include "hw/present.h"
#include "hw/vote.h"
#include "hw/warp.h"
#include "ops/gemm/sm80/tile_work.h"

namespace halftone::gemm {

// A warp's spans: the row of its tile, the first span, their distance and number.
struct GpuSpanRange {
  uint32_t tile_row, first, step, count;
};

// promoted: the scaled FP32 sum; accumulator: since the last promotion.
template <uint32_t kTilesM>
struct GpuSums {
  float promoted[kTilesM][4] = {}, accumulator[kTilesM][4] = {};
};

template <GpuCode kCode, uint32_t kTilesM>
struct GpuGemvSpans {
  using Policy = CodePolicy<kCode>;
  using Sums = GpuSums<kTilesM>;
  static constexpr uint32_t kBits = Policy::kBits, kRows = 16, kSpan = 128;
  static constexpr uint32_t kDepth = kSpan * 8 / kBits, kHalf = kDepth / 2;
  static constexpr uint32_t kOctets = kHalf / 32;  // of a lane in half a span
  static constexpr uint32_t kWords = kBits / 4;    // of an octet of packed weights
  // Scales of a row, FP32 for every 32 elements at most; [row][scales] behind the weights.
  static constexpr uint32_t kRowScales = kBits <= 8 ? kDepth / 32 * 4 : 0;
  // Two spans of 2 KB in flight a warp: with 24 warps an SM or more, 96 KB, more than twice what
  // the memory latency needs (docs/findings/gpu-gemv.md).
  static constexpr uint32_t kStages = 3, kScales = kRows * kSpan;
  static constexpr uint32_t kStageBytes = kRows * (kSpan + kRowScales);  // at most
  HT_HOST_DEVICE static uint32_t stage_bytes(const GpuSpans& spans) {
    return kRows * (kSpan + spans.scale_bytes);
  }
  static constexpr uint32_t kRingBytes = kStages * kStageBytes;
  // Formats with UE8M0 scales for 32 elements.
  static constexpr bool kUe8m0 =
      kCode == GpuCode::e2m1 || kCode == GpuCode::e4m3 || kCode == GpuCode::e5m2;

  // The swizzled offset of a row's chunk in a stage, so that lanes that read together cover all
  // banks.
  template <GpuLoop kLoop>
  HT_DEVICE static uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
    return swizzled<(kLoop == GpuLoop::narrow ? kBits : 16), kSpan>(row, chunk);
  }

  // The copies of a lane: 16 bytes of weights of every fourth row, and the scales of a row: all of
  // a span or, where these are more than 16 bytes, half of them.
  template <GpuLoop kLoop>
  struct Copies {
    const uint8_t* rows[kRows / 4];
    const uint8_t* scales = nullptr;
    uint32_t place[kRows / 4], scale_place = 0, bytes = 0;

    HT_DEVICE Copies(const GpuGemm& p, const GpuTask& task, const GpuSpanRange& range) {
      const uint32_t lane = hw::lane_index();
      // Rows beyond the last repeat the last one; nobody reads their sums.
      const auto row_of = [&](uint32_t r) {
        const uint32_t row = task.output(p.epilogue.gate, range.tile_row + r);
        return row < p.n ? row : p.n - 1;
      };
      HT_UNROLL
      for (uint32_t i = 0; i < kRows / 4; ++i) {
        const uint32_t r = lane / 8 + i * 4;
        rows[i] = row_address(p.weight, task.source_of(p.epilogue.gate, r), row_of(r)) +
                  int64_t{range.first} * kSpan + lane % 8 * 16;
        place[i] = chunk_offset<kLoop>(r, lane % 8);
      }
      if constexpr (kRowScales > 0) {
        const uint32_t parts = p.spans.scale_bytes > 16 ? 2 : 1, r = lane % kRows;
        if (p.spans.scale_bytes == 0 || lane >= kRows * parts) return;
        bytes = p.spans.scale_bytes / parts;
        scales = scale_address(p.weight, task.source_of(p.epilogue.gate, r), row_of(r), 0) +
                 lane / kRows * bytes;
        scale_place = kScales + r * p.spans.scale_bytes + lane / kRows * bytes;
      }
    }
    // The next span, which is span `index` of the rows; the one after it is `step` further.
    HT_DEVICE void next(const GpuGemm& p, hw::SharedAddress to, uint32_t index, uint32_t step,
                        hw::Site site = hw::Site::current()) {
      HT_UNROLL
      for (uint32_t i = 0; i < kRows / 4; ++i) {
        hw::cp_async<16>(to + place[i], rows[i], site);
        rows[i] += step * kSpan;
      }
      if constexpr (kRowScales > 0) {
        const uint8_t* from = scales + int64_t{index >> p.spans.scale_shift} * p.spans.scale_pitch;
        const hw::SharedAddress at = to + scale_place;
        if (bytes == 16) hw::cp_async<16>(at, from, site);
        if (bytes == 8) hw::cp_async<8>(at, from, site);
        if (bytes == 4) hw::cp_async<4>(at, from, site);
        if (bytes == 2) {
          const auto* half = reinterpret_cast<const uint16_t*>(from);
          hw::store_shared(at, hw::load_global(half, site), site);
        }
        if (bytes == 1) hw::store_shared(at, hw::load_global(from, site), site);
      }
    }
  };

  // The operands of a lane: rows lane / 4 of a tile and of x, the latter from the lane's first
  // element on; and the scales of x of the two columns whose sums it has.
  template <GpuLoop kLoop>
  struct Lane {
    static constexpr bool kNarrow = kLoop == GpuLoop::narrow;
    const uint8_t* x[kTilesM];
    const float* x_scales[kTilesM][2];
    uint32_t place, scale_row;

    HT_DEVICE Lane(const GpuGemm& p, const GpuTask& task, const GpuSpanRange& range) {
      const uint32_t lane = hw::lane_index(), row = lane / 4, quad = lane % 4;
      const uint32_t at = quad * (kNarrow ? kBits : 16);
      place = chunk_offset<kLoop>(row, at / 16) + at % 16;
      scale_row = kScales + row * p.spans.scale_bytes;
      // A column that does not exist reads the first one; nobody reads its sums.
      const auto existing = [&](uint32_t column) {
        return column < task.rows * p.terms ? column : 0;
      };
      HT_UNROLL
      for (uint32_t j = 0; j < kTilesM; ++j) {
        const uint32_t column = existing(j * 8 + row);
        x[j] = p.x + (x_row_of(p, task, column / p.terms) * p.terms + column % p.terms) * p.x_row +
               (int64_t{range.first} * kDepth + quad * (kNarrow ? 8 : kOctets * 8)) * 2;
        HT_UNROLL
        for (uint32_t c = 0; c < 2; ++c) {
          x_scales[j][c] = p.x_scales;
          if (!kNarrow || p.x_scales == nullptr) continue;
          const uint32_t of = existing(j * 8 + quad * 2 + c) / p.terms;
          x_scales[j][c] += x_row_of(p, task, of) * p.x_scale_row;
        }
      }
    }
    // Octet `octet` of the lane in a span, for the columns of tile j.
    HT_DEVICE void load_x(uint32_t j, uint32_t octet, uint32_t (&to)[4], hw::Site site) const {
      const uint32_t k = kNarrow ? octet * 32 : octet / kOctets * kHalf + octet % kOctets * 8;
      const auto words = hw::load_global(reinterpret_cast<const hw::Words4*>(x[j] + k * 2), site);
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) to[i] = words[i];
      Policy::arrange(to);
    }
  };

  HT_DEVICE static void promote_scaled(Sums& sums, uint32_t j, const float (&w)[2],
                                       const float (&x)[2]) {
    HT_UNROLL
    for (uint32_t e = 0; e < 4; ++e) {
      sums.promoted[j][e] =
          hw::fma(sums.accumulator[j][e], w[e / 2] * x[e % 2], sums.promoted[j][e]);
      sums.accumulator[j][e] = 0;
    }
  }
  // The same with x in shared memory, in the order in which lanes read it
  // (sm80/gemv_persistent.cuh).
  struct SharedLane {
    hw::SharedAddress x;
    uint32_t place, scale_row, unit;  // bytes of an octet of every lane and column

    HT_DEVICE void load_x(uint32_t, uint32_t octet, uint32_t (&to)[4], hw::Site site) const {
      const auto words = hw::load_shared<hw::Words4>(x + octet * unit, site);
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) to[i] = words[i];
    }
  };

  // Promotes the accumulator of half a span or a whole one, ...
  template <GpuLoop kLoop, class AnyLane>
  HT_DEVICE static void promote(const GpuGemm& p, const AnyLane& lane, hw::SharedAddress stage,
                                uint32_t half, Sums& sums, hw::Site site = hw::Site::current()) {
    float w[2] = {p.alpha, p.alpha};
    if constexpr (kBits <= 8 && kCode != GpuCode::e2m1 && kLoop == GpuLoop::wide) {
      if (p.scaled) {
        const Format format = p.weight.scale_format;
        const hw::SharedAddress at =
            stage +
            (lane.scale_row + (half * kOctets >> p.spans.octet_shift) * scale_bytes(format));
        w[0] = scale_at(format, at, site);
        w[1] = scale_at(format, at + 8 * p.spans.scale_bytes, site);
      }
    }
    HT_UNROLL
    for (uint32_t j = 0; j < kTilesM; ++j) promote_scaled(sums, j, w, {1, 1});
  }
  // ... or of an octet a lane, with any scales, those of x too.
  HT_DEVICE static void promote_octet(const GpuGemm& p, const Lane<GpuLoop::narrow>& lane,
                                      hw::SharedAddress stage, uint32_t index, uint32_t octet,
                                      Sums& sums, hw::Site site = hw::Site::current()) {
    float w[2] = {p.alpha, p.alpha};
    if constexpr (kRowScales > 0) {
      if (p.scaled) {
        const Format format = p.weight.scale_format;
        const hw::SharedAddress at =
            stage + (lane.scale_row + (octet >> p.spans.octet_shift) * scale_bytes(format));
        w[0] *= scale_at(format, at, site);
        w[1] *= scale_at(format, at + 8 * p.spans.scale_bytes, site);
      }
    }
    HT_UNROLL
    for (uint32_t j = 0; j < kTilesM; ++j) {
      float x[2] = {1, 1};
      if (p.x_scales != nullptr) {
        const uint32_t group = (index * kDepth + octet * 32) / p.x_group;
        x[0] = hw::load_global(lane.x_scales[j][0] + group, site);
        x[1] = hw::load_global(lane.x_scales[j][1] + group, site);
      }
      promote_scaled(sums, j, w, x);
    }
  }
  HT_DEVICE static float scale_at(Format format, hw::SharedAddress at, hw::Site site) {
    if (format == Format::f32) return hw::load_shared<float>(at, site);
    if (format == Format::bf16) {
      return std::bit_cast<float>(uint32_t{hw::load_shared<uint16_t>(at, site)} << 16);
    }
    if (format == Format::f16) return hw::cvt_f32_f16(hw::load_shared<uint16_t>(at, site));
    return decode_ue8m0(hw::load_shared<uint8_t>(at, site));
  }

  // The MMAs of octet `octet` of two rows with that of each column.
  template <class AnyLane>
  HT_DEVICE static void mma_octet(const uint32_t (&w)[2][Policy::kTerms][4], const AnyLane& lane,
                                  uint32_t octet, uint32_t x_mask, Sums& sums, hw::Site site) {
    HT_UNROLL
    for (uint32_t j = 0; j < kTilesM; ++j) {
      uint32_t x[4];
      lane.load_x(j, octet, x, site);
      HT_UNROLL
      for (uint32_t s = 0; s < 4; s += 2) {
        const uint32_t b[2] = {x[s] & x_mask, x[s + 1] & x_mask};
        HT_UNROLL
        for (uint32_t t = 0; t < Policy::kTerms; ++t) {
          const uint32_t a[4] = {w[0][t][s], w[1][t][s], w[0][t][s + 1], w[1][t][s + 1]};
          hw::mma_m16n8k16<Policy::kType>(sums.accumulator[j], a, b, sums.accumulator[j], site);
        }
      }
    }
  }

  // Half a span whose UE8M0 scales BF16 weights cannot hold: the lanes of a quad one after the
  // other, with the other lanes' elements of x zeroed, so that each accumulator has a single scale.
  template <class AnyLane>
  HT_DEVICE static void mma_per_lane(const GpuGemm& p, const AnyLane& lane, hw::SharedAddress stage,
                                     uint32_t half, Sums& sums, hw::Site site) {
    HT_ROLLED
    for (uint32_t source = 0; source < 4; ++source) {
      const uint32_t mask = hw::lane_index() % 4 == source ? 0xffffffff : 0;
      HT_ROLLED
      for (uint32_t o = 0; o < kOctets; ++o) {
        uint32_t w[2][Policy::kTerms][4];
        HT_UNROLL
        for (uint32_t r = 0; r < 2; ++r) {
          const hw::SharedAddress at = stage + ((lane.place ^ half * 64) + r * 8 * kSpan);
          const auto words = hw::load_shared<hw::Vector<uint32_t, kWords>>(at + o * kBits, site);
          uint32_t octet[kWords];
          HT_UNROLL
          for (uint32_t i = 0; i < kWords; ++i) octet[i] = words[i];
          Policy::expand(octet, Policy::kUnscaled, w[r]);
        }
        mma_octet(w, lane, half * kOctets + o, mask, sums, site);
      }
      const uint32_t at = lane.scale_row + (half * 4 + source) * kOctets / 4;
      float scales[2];
      HT_UNROLL
      for (uint32_t r = 0; r < 2; ++r) {
        scales[r] = p.alpha * scale_at(Format::ue8m0, stage + (at + r * 8 * (kDepth / 32)), site);
      }
      HT_UNROLL
      for (uint32_t j = 0; j < kTilesM; ++j) promote_scaled(sums, j, scales, {1, 1});
    }
  }

  // A whole span.
  template <GpuLoop kLoop, class AnyLane>
  HT_DEVICE static void mma(const GpuGemm& p, const AnyLane& lane, hw::SharedAddress stage,
                            Sums& sums, hw::Site site = hw::Site::current()) {
    constexpr bool kLanes = kLoop == GpuLoop::ue8m0;
    const uint32_t quad = hw::lane_index() % 4;
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      uint32_t packed[2][4], pairs[2][2];  // of rows r and r + 8
      bool fits = true;
      HT_UNROLL
      for (uint32_t r = 0; r < 2; ++r) {
        const hw::SharedAddress at = stage + ((lane.place ^ half * 64) + r * 8 * kSpan);
        const auto words = hw::load_shared<hw::Words4>(at, site);
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) packed[r][i] = words[i];
        pairs[r][0] = pairs[r][1] = Policy::kUnscaled;
        if constexpr (kLanes) {
          const uint32_t group = (half * 4 + quad) * kOctets / 4;
          const auto exponent = hw::load_shared<uint8_t>(
              stage + (lane.scale_row + r * 8 * (kDepth / 32) + group), site);
          fits = fits && exponent >= 16 && exponent <= 128;
          // 2^(exponent - 127) times the power that the policy's values lack.
          pairs[r][0] = pairs[r][1] = twice((exponent << 7) + Policy::kUnscaled % 65536 - 0x3f80);
        } else if constexpr (kCode == GpuCode::e2m1) {
          if (p.pairs) {  // two scales of 16 elements
            const uint32_t at_pair = lane.scale_row + r * 8 * 16 + half * 8 + quad * 2;
            Policy::pairs_of(hw::load_shared<uint16_t>(stage + at_pair, site), pairs[r]);
          }
        }
      }
      if constexpr (kLanes) {
        if (!hw::vote_all(fits, hw::kFullWarp, site)) {
          mma_per_lane(p, lane, stage, half, sums, site);
          continue;
        }
      }
      HT_UNROLL
      for (uint32_t o = 0; o < kOctets; ++o) {
        uint32_t w[2][Policy::kTerms][4];
        HT_UNROLL
        for (uint32_t r = 0; r < 2; ++r) {
          uint32_t octet[kWords];
          HT_UNROLL
          for (uint32_t i = 0; i < kWords; ++i) octet[i] = packed[r][o * kWords + i];
          Policy::expand(octet, pairs[r][o / 2 % 2], w[r]);
          if constexpr (kLanes && kCode != GpuCode::e2m1) {
            HT_UNROLL
            for (uint32_t i = 0; i < 4; ++i) {
              w[r][0][i] = fma_bf16x2(w[r][0][i], pairs[r][0], kMinusZeros);
            }
          }
        }
        mma_octet(w, lane, half * kOctets + o, 0xffffffff, sums, site);
      }
      // At most 8 MMAs between promotions: half a span of 4-bit weights.
      if (kLanes || kBits == 4 || half == 1 || p.spans.halves) {
        promote<kLoop>(p, lane, stage, half, sums, site);
      }
    }
  }

  HT_DEVICE static void mma_narrow(const GpuGemm& p, const Lane<GpuLoop::narrow>& lane,
                                   hw::SharedAddress stage, uint32_t index, Sums& sums,
                                   hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t o = 0; o < 2 * kOctets; ++o) {
      uint32_t w[2][Policy::kTerms][4];
      HT_UNROLL
      for (uint32_t r = 0; r < 2; ++r) {
        const hw::SharedAddress at = stage + ((lane.place ^ o * 4 * kBits) + r * 8 * kSpan);
        const auto words = hw::load_shared<hw::Vector<uint32_t, kWords>>(at, site);
        uint32_t octet[kWords];
        HT_UNROLL
        for (uint32_t i = 0; i < kWords; ++i) octet[i] = words[i];
        Policy::expand(octet, Policy::kUnscaled, w[r]);
      }
      mma_octet(w, lane, o, 0xffffffff, sums, site);
      promote_octet(p, lane, stage, index, o, sums, site);
    }
  }

  template <GpuLoop kLoop>
  HT_DEVICE static void run(const GpuGemm& p, const GpuTask& task, const GpuSpanRange& range,
                            hw::SharedAddress ring, Sums& sums) {
    Copies<kLoop> copies(p, task, range);
    // One cp.async group for every span, empty beyond the end: then "all but the newest" always
    // means that the span to be read has arrived.
    uint32_t filled = 0, read = 0;  // offset of the next span to fill, and of the one to read
    const auto fill = [&](uint32_t i) {
      if (i < range.count) copies.next(p, ring + filled, range.first + i * range.step, range.step);
      hw::cp_async_commit();
      filled = filled + kStageBytes < kRingBytes ? filled + kStageBytes : 0;
    };
    HT_UNROLL
    for (uint32_t s = 0; s + 1 < kStages; ++s) fill(s);
    hw::pdl_wait();
    Lane<kLoop> lane(p, task, range);
    HT_ROLLED
    for (uint32_t i = 0; i < range.count; ++i) {
      hw::cp_async_wait<kStages - 2>();  // this lane's copies of the span, ...
      hw::warp_sync();  // ... all lanes', and none reads the previous span any more
      fill(i + kStages - 1);
      // Any earlier, and CTAs of the next kernel would take the place of this one's.
      if (i + kStages - 1 == range.count) hw::launch_dependents();
      if constexpr (kLoop == GpuLoop::narrow) {
        mma_narrow(p, lane, ring + read, range.first + i * range.step, sums);
      } else {
        mma<kLoop>(p, lane, ring + read, sums);
      }
      HT_UNROLL
      for (uint32_t j = 0; j < kTilesM; ++j) lane.x[j] += range.step * kDepth * 2;
      read = read + kStageBytes < kRingBytes ? read + kStageBytes : 0;
    }
    hw::cp_async_wait<0>();
  }
  HT_DEVICE static void run(const GpuGemm& p, const GpuTask& task, const GpuSpanRange& range,
                            hw::SharedAddress ring, Sums& sums) {
    if (p.spans.loop == GpuLoop::wide) return run<GpuLoop::wide>(p, task, range, ring, sums);
    if constexpr (kUe8m0) {
      if (p.spans.loop == GpuLoop::ue8m0) return run<GpuLoop::ue8m0>(p, task, range, ring, sums);
    }
    run<GpuLoop::narrow>(p, task, range, ring, sums);
  }
};

}  // namespace halftone::gemm

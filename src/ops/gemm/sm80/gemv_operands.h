// The operands of the GEMV from sm_80 on: how a warp copies its rows of W, and where a lane reads
// x.
#pragma once
#include "ops/gemm/sm80/tile_work.h"

namespace halftone::gemm {

// The copies of a warp. A lane has one chunk of 16 bytes of every fourth row.
template <GpuCode kCode>
struct GpuGemvCopies {
  using Policy = CodePolicy<kCode>;
  static constexpr uint32_t kRows = 16, kSpan = 128;
  static constexpr uint32_t kDepth = kSpan * 8 / Policy::kBits;
  static constexpr uint32_t kEach = kRows / 4;
  const uint8_t* rows[kEach];
  uint32_t place[kEach];
  int64_t chunk, end;  // the lane's byte in a span; bytes of a row
  bool aligned = true;

  HT_DEVICE GpuGemvCopies(const GpuGemm& p, const GpuTask& task, uint32_t tile_row) {
    const uint32_t lane = hw::lane_index();
    chunk = lane % 8 * 16;
    end = (int64_t{p.k} * Policy::kBits + 7) / 8;
    HT_UNROLL
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t r = lane / 8 + i * 4;
      const uint32_t row = task.output(p.epilogue.gate, tile_row + r);
      // Rows beyond the last repeat the last one; nobody reads their sums.
      rows[i] =
          row_address(p.weight, task.source_of(p.epilogue.gate, r), row < p.n ? row : p.n - 1);
      place[i] = swizzled<Policy::kBits, kSpan>(r, lane % 8);
      aligned = aligned && reinterpret_cast<uintptr_t>(rows[i]) % 16 == 0;
    }
  }
  HT_DEVICE void span(const GpuGemm& p, const GpuTask& task, uint32_t tile_row, uint32_t index,
                      hw::SharedAddress to) const {
    const int64_t at = int64_t{index} * kSpan + chunk;
    if constexpr (kCode == GpuCode::f32) {
      if (p.dequantise) return dequantise(p, task, tile_row, index, to);
    }
    if constexpr (kCode == GpuCode::dequantised) {
      return dequantise(p, task, tile_row, index, to);
    }
    if (aligned && at + 16 <= end) {
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) hw::cp_async<16>(to + place[i], rows[i] + at);
      return;
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kEach; ++i) {
      copy_chunk(to + place[i], at < end ? rows[i] + at : rows[i], end - at);
    }
  }
  // Dequantises values and scales to FP32, or to BF16.
  HT_DEVICE void dequantise(const GpuGemm& p, const GpuTask& task, uint32_t tile_row,
                            uint32_t index, hw::SharedAddress to) const {
    constexpr uint32_t kElements = 128 / Policy::kBits;
    const uint32_t lane = hw::lane_index(), k = index * kDepth + lane % 8 * kElements;
    HT_UNROLL
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t r = lane / 8 + i * 4, row = task.output(p.epilogue.gate, tile_row + r);
      const GpuSource source = task.source_of(p.epilogue.gate, r);
      if constexpr (kCode == GpuCode::f32) {
        hw::store_shared(to + place[i], dequantised(p, source, row, k));
      } else {
        hw::store_shared(to + place[i], dequantised_pairs(p, source, row, k));
      }
    }
  }
};

// The lane's column of x in a tile of eight.
template <GpuCode kCode>
struct GpuGemvColumn {
  using Policy = CodePolicy<kCode>;
  const uint8_t* at = nullptr;  // null: beyond the columns of x
  bool aligned = false;

  HT_DEVICE void find(const GpuGemm& p, const GpuTask& task, uint32_t tile) {
    const uint32_t column = tile * 8 + hw::lane_index() / 4;
    if (column >= task.rows * p.terms) return;
    at = p.x + (x_row_of(p, task, column / p.terms) * p.terms + column % p.terms) * p.x_row;
    aligned = reinterpret_cast<uintptr_t>(at) % 16 == 0;
  }
  // The octet from k on; elements that do not exist are 0.
  HT_DEVICE void load(const GpuGemm& p, uint32_t k, uint32_t (&x)[4],
                      hw::Site site = hw::Site::current()) const {
    HT_UNROLL
    for (uint32_t w = 0; w < 4; ++w) x[w] = 0;
    if (at == nullptr) return;
    const uint8_t* from = at + int64_t{k} * 2;
    if (aligned && k + 8 <= p.k) {
      const auto words = hw::load_global(reinterpret_cast<const hw::Words4*>(from), site);
      HT_UNROLL
      for (uint32_t w = 0; w < 4; ++w) x[w] = words[w];
    } else {
      HT_UNROLL
      for (uint32_t e = 0; e < 8; ++e) {
        if (k + e >= p.k) continue;
        const auto* element = reinterpret_cast<const uint16_t*>(from) + e;
        x[e / 2] |= uint32_t{hw::load_global(element, site)} << 16 * (e % 2);
      }
    }
    Policy::arrange(x);
  }
};

}  // namespace halftone::gemm

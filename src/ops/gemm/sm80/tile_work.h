// The tile of a CTA, and how operands reach shared memory, for the kernels from sm_80 on.
#pragma once
#include "hw/copy/cp_async.h"
#include "hw/thread.h"
#include "ops/gemm/sm80/params.h"

namespace halftone::gemm {

struct GpuTask {
  GpuSource source[2];
  uint32_t n0, row0, rows;  // first output; first row of y, how many
  uint32_t expert;
  hw::SharedAddress base;

  // Row of the tile to a row of the operand; gate and up alternate by eights, so that one thread
  // has both.
  HT_DEVICE uint32_t output(bool gate, uint32_t r) const {
    return n0 + (gate ? r / 16 * 8 + r % 8 : r);
  }
  HT_DEVICE GpuSource source_of(bool gate, uint32_t r) const {
    GpuSource s = source[0];
    if (gate && (r & 8) != 0) s = source[1];
    return s;
  }
};

// For tiles of `tile_rows` rows of W and `columns` columns of x; without rows where there is
// nothing to do.
HT_DEVICE GpuTask task_of(const GpuGemm& p, uint32_t tile_rows, uint32_t columns) {
  GpuTask task{};
  task.base = hw::shared_memory_base();
  task.n0 = hw::block_index().x * (p.epilogue.gate ? tile_rows / 2 : tile_rows);
  task.source[0] = p.source[0], task.source[1] = p.source[1];
  if (p.chunks == nullptr) {
    task.row0 = hw::block_index().y * (columns / p.terms);
    const uint32_t left = p.m - task.row0;
    task.rows = left < columns / p.terms ? left : columns / p.terms;
    return task;
  }
  if (hw::block_index().y >= hw::load_global(p.chunk_count)) return task;
  const auto chunk = hw::load_global(p.chunks + hw::block_index().y);
  task.expert = chunk.expert, task.row0 = chunk.first, task.rows = chunk.count;
  task.source[0] = load_source(p.experts + chunk.expert * p.expert_step);
  if (p.epilogue.gate) task.source[1] = load_source(p.experts + chunk.expert * p.expert_step + 1);
  return task;
}

HT_DEVICE int64_t x_row_of(const GpuGemm& p, const GpuTask& task, uint32_t row) {
  return p.x_rows != nullptr ? hw::load_global(p.x_rows + task.row0 + row) : task.row0 + row;
}

// The swizzled offset of a row's 16-byte chunk: so that the rows that a quarter, half or whole warp
// reads together, kBytes a lane, cover all banks: two rows of 64 bytes, four of 32, eight of 16.
template <uint32_t kBytes, uint32_t kRow>
HT_HOST_DEVICE uint32_t swizzled(uint32_t row, uint32_t chunk) {
  if constexpr (kBytes == 32) {  // read in two halves: every other chunk of two rows
    return row * kRow + ((chunk ^ (row & 1)) * 16);
  } else {
    constexpr uint32_t kRowsAtOnce = 32 / kBytes, kLines = kRow >= 128 ? 1 : 128 / kRow;
    return row * kRow + ((chunk ^ (row % kRowsAtOnce / kLines * (8 / kRowsAtOnce))) * 16);
  }
}

// 16 bytes from `from`, of which `valid` exist: asynchronously where they are aligned and whole.
// cp.async could zero-fill a part and read no more than that, but memory checkers count all of it
// as read.
HT_DEVICE void copy_chunk(hw::SharedAddress to, const uint8_t* from, int64_t valid,
                          hw::Site site = hw::Site::current()) {
  const auto bytes = static_cast<uint32_t>(valid < 0 ? 0 : valid > 16 ? 16 : valid);
  if (bytes == 16 && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    hw::cp_async<16>(to, from, site);
    return;
  }
  hw::Words4 words{};
  for (uint32_t i = 0; i < bytes; ++i) {
    words[i / 4] |= uint32_t{hw::load_global(from + i, site)} << 8 * (i % 4);
  }
  hw::store_shared(to, words, site);
}

// Four elements of an operand of any format, dequantised to FP32; 0 where they do not exist.
HT_DEVICE hw::Vector<float, 4> dequantised(const GpuGemm& p, const GpuSource& s, uint32_t row,
                                           uint32_t k) {
  hw::Vector<float, 4> values{};
  const bool grouped = s.scales != nullptr && p.weight.group > 0;
  HT_UNROLL
  for (uint32_t e = 0; e < 4; ++e) {
    if (row >= p.n || k + e >= p.k) continue;
    const float scale = grouped ? scale_of(p.weight, s, row, k + e) : 1.0f;
    values[e] = element_of(p.weight, s, row, k + e) * scale;
  }
  return values;
}
// Eight of them as BF16, which holds them exactly.
HT_DEVICE hw::Words4 dequantised_pairs(const GpuGemm& p, const GpuSource& s, uint32_t row,
                                       uint32_t k) {
  hw::Words4 words;
  HT_UNROLL
  for (uint32_t i = 0; i < 4; i += 2) {
    const auto four = dequantised(p, s, row, k + 2 * i);
    words[i] = hw::cvt_bf16x2(four[0], four[1]), words[i + 1] = hw::cvt_bf16x2(four[2], four[3]);
  }
  return words;
}

}  // namespace halftone::gemm

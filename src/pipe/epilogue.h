// Results on their way out: a warp's accumulators -> shared memory -> tensor copy, or straight to
// global memory.
//
// The accumulators are 16 rows of fragments as mma.sync, wgmma and tcgen05.ld 16x256b give them:
// four values for every eight columns, in order (tile/fragment.h). `pack(low, high)` makes two
// neighbours of a row one register of 16-bit elements, e.g. hw::cvt_bf16x2.
#pragma once
#include "hw/copy/bulk_copy.h"
#include "hw/copy/tma.h"
#include "hw/fence.h"
#include "hw/memory.h"
#include "hw/mma/stmatrix.h"
#include "hw/thread.h"
#include "hw/warp.h"
#include "tile/ldmatrix.h"
#include "tile/swizzle.h"

namespace halftone::pipe {

// A warp's own way out (sm_90 up): its 16 rows leave in pieces of kColumns columns, one box and one
// copy each. No warp waits for another, and with two buffers one piece is written while the copy
// engine reads the other.
//   pipe::WarpStore<> out{smem + kPieces + warp * pipe::WarpStore<>::kSharedBytes};
//   out.store(sum, &p.c_map, row, column, pack);   // every tile
//   out.drain();                                   // before the block ends
// The map's box is kRows x kColumns with kSwizzle; what lies outside the matrix is not written.
template <uint32_t kColumnsOfPiece = 64, uint32_t kBuffers = 2>
class WarpStore {
 public:
  static constexpr uint32_t kRows = 16, kColumns = kColumnsOfPiece;
  static_assert(kColumns == 64 || kColumns == 32 || kColumns == 16,
                "a piece is as wide as a swizzle: 128, 64 or 32 bytes of 16-bit elements");
  static constexpr tile::Swizzle kSwizzle = kColumns == 64   ? tile::Swizzle::b128
                                            : kColumns == 32 ? tile::Swizzle::b64
                                                             : tile::Swizzle::b32;
  static constexpr uint32_t kPieceBytes = kRows * kColumns * 2;
  static constexpr uint32_t kSharedBytes = kBuffers * kPieceBytes;  // of one warp
  static_assert(kPieceBytes % tile::pattern_bytes(kSwizzle) == 0);

  // `base` is the warp's own, aligned to the swizzle's pattern.
  HT_DEVICE explicit WarpStore(hw::SharedAddress base) : base_(base) {}

  // 16 rows x 2 * kValues columns to (row, column) of the matrix.
  template <uint32_t kValues, class Pack>
  HT_DEVICE void store(const float (&values)[kValues], const hw::TensorMap* map, uint32_t row,
                       uint32_t column, Pack pack, hw::Site site = hw::Site::current()) {
    static_assert(kValues * 2 % kColumns == 0, "whole pieces");
    // The next call starts with buffer 0 again, and the wait below counts copies, not buffers.
    static_assert(kValues * 2 / kColumns % kBuffers == 0, "pieces fill the buffers in turn");
    const bool copies = hw::lane_index(site) == 0;  // the same lane always: groups are a thread's
    const tile::RowChunk place = tile::ldmatrix_a(static_cast<int>(hw::lane_index(site)));
    const uint32_t line = static_cast<uint32_t>(place.row) * kColumns * 2;
    const uint32_t key = tile::row_key(kSwizzle, static_cast<uint32_t>(place.row));
    HT_UNROLL
    for (uint32_t piece = 0; piece < kValues * 2 / kColumns; ++piece) {
      const hw::SharedAddress buffer = base_ + piece % kBuffers * kPieceBytes;
      if (copies) hw::bulk_wait_read<kBuffers - 1>(site);  // the copy before the last has read it
      hw::warp_sync(hw::kFullWarp, site);
      HT_UNROLL
      for (uint32_t j = 0; j < kColumns / 16; ++j) {  // two neighbouring fragments at a time
        const float* v = values + piece * kColumns / 2 + j * 8;
        const uint32_t packed[4] = {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]),
                                    pack(v[6], v[7])};
        const uint32_t chunk = 2 * j + static_cast<uint32_t>(place.chunk);
        hw::stmatrix(buffer + (line + ((chunk * 16) ^ key)), packed, site);
      }
      // Every lane's stores, before the copy engine reads them.
      hw::fence_proxy_async_shared(site);
      hw::warp_sync(hw::kFullWarp, site);
      if (copies) {
        hw::tensor_store(
            map, {static_cast<int32_t>(column + piece * kColumns), static_cast<int32_t>(row)},
            buffer, site);
        hw::bulk_commit(site);
      }
    }
  }

  // Waits until the copies have left shared memory and are visible: before the block ends.
  HT_DEVICE void drain(hw::Site site = hw::Site::current()) const {
    if (hw::lane_index(site) == 0) hw::bulk_wait<0>(site);
  }

 private:
  hw::SharedAddress base_;
};

// Straight from the registers to a row-major matrix of 16-bit elements, four bytes at a time: what
// lies outside `rows` x `columns` is left out; `columns` is even. Four neighbouring lanes write 16
// bytes of a row, half of a 32-byte sector: for architectures without tensor copies and for shapes
// whose rows are no multiple of 16 bytes. `values` holds kColumns / 2 of the thread.
template <uint32_t kColumns, class Pack>
HT_DEVICE void store_direct(const float* values, uint16_t* matrix, uint64_t row_elements,
                            uint32_t rows, uint32_t columns, uint32_t row, uint32_t column,
                            Pack pack, hw::Site site = hw::Site::current()) {
  const int lane = static_cast<int>(hw::lane_index(site));
  HT_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const tile::Element first = tile::mma_c_element(lane, static_cast<int>(2 * half));
    const uint32_t r = row + static_cast<uint32_t>(first.row);
    uint16_t* line = matrix + r * row_elements;
    HT_UNROLL
    for (uint32_t j = 0; j < kColumns / 8; ++j) {
      const uint32_t c = column + 8 * j + static_cast<uint32_t>(first.col);
      if (r < rows && c < columns) {
        hw::store_global(reinterpret_cast<uint32_t*>(line + c),
                         pack(values[4 * j + 2 * half], values[4 * j + 2 * half + 1]), site);
      }
    }
  }
}

}  // namespace halftone::pipe

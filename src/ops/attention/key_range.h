// Causal, window and chunk masks as an interval of visible keys a query row. Kernels and hosts use
// the same functions.
#pragma once
#include "hw/target.h"

namespace halftone {

// Largest number of queries and of keys: sums of two stay within 32 bits.
inline constexpr int64_t kLongest = int64_t{1} << 30;

// Keys first .. end - 1; none when end <= first.
struct KeyInterval {
  int32_t first, end;
};

// Tiles first .. end - 1 hold the keys visible to some row of a tile of rows; in full_first ..
// full_end - 1 every key is visible to every row, so that no mask is applied.
struct KeyTiles {
  uint32_t first, end, full_first, full_end;
  HT_HOST_DEVICE bool none() const { return first == end; }
  HT_HOST_DEVICE bool masked(uint32_t tile) const { return tile < full_first || tile >= full_end; }
};

// Row i is at the position of key i + keys - queries; visible are keys from `left` before it to
// `right` after it, in its own chunk.
struct KeyRange {
  int32_t queries = 0, count = 0;
  int32_t left = -1, right = -1;  // -1: unbounded
  int32_t chunk = 0;              // 0: none

  HT_HOST_DEVICE KeyInterval keys(int32_t row) const {
    const int32_t position = row + count - queries;
    KeyInterval visible{left >= 0 && position > left ? position - left : 0, count};
    if (right >= 0 && position + right + 1 < count) visible.end = position + right + 1;
    if (chunk > 0) {
      const int32_t begin = (position >= 0 ? position / chunk : (position + 1) / chunk - 1) * chunk;
      if (begin > visible.first) visible.first = begin;
      if (begin + chunk < visible.end) visible.end = begin + chunk;
    }
    return visible;
  }
  // K/V tiles of rows `row` to row + rows - 1, of which the first exists. Both ends of the
  // intervals rise with the row, so the first and the last row bound them all.
  HT_HOST_DEVICE KeyTiles tiles(int32_t row, int32_t rows, int32_t tile) const {
    const KeyInterval first_row = keys(row),
                      last_row = keys((row + rows < queries ? row + rows : queries) - 1);
    if (first_row.first >= last_row.end) return {0, 0, 0, 0};
    const int32_t full_end = first_row.end > 0 ? first_row.end / tile : 0;
    return {static_cast<uint32_t>(first_row.first / tile),
            static_cast<uint32_t>((last_row.end + tile - 1) / tile),
            static_cast<uint32_t>((last_row.first + tile - 1) / tile),
            static_cast<uint32_t>(full_end)};
  }
};

}  // namespace halftone

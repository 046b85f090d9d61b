// Which keys a query row sees where the mask is an interval: all keys, causal, windows, chunks.
// Kernels and hosts ask the same functions.
#pragma once
#include "hw/target.h"

namespace halftone {

// Queries and keys at most, so that sums of two stay within 32 bits.
inline constexpr int64_t kLongest = int64_t{1} << 30;

// Keys first .. end - 1; none when end <= first.
struct KeyInterval {
  int32_t first, end;
};

// Tiles first .. end - 1 hold the keys that some row of a tile of rows sees; in full_first ..
// full_end - 1 every row sees every key.
struct KeyTiles {
  uint32_t first, end, full_first, full_end;
  HT_HOST_DEVICE bool none() const { return first == end; }
  HT_HOST_DEVICE bool masked(uint32_t tile) const { return tile < full_first || tile >= full_end; }
};

// Row i stands at key i + keys - queries, and sees those from `left` before to `right` behind, in
// its own chunk.
struct KeyRange {
  int32_t queries = 0, count = 0;
  int32_t left = -1, right = -1;  // -1: unbounded
  int32_t chunk = 0;              // 0: none

  HT_HOST_DEVICE KeyInterval keys(int32_t row) const {
    const int32_t place = row + count - queries;
    KeyInterval seen{left >= 0 && place > left ? place - left : 0, count};
    if (right >= 0 && place + right + 1 < count) seen.end = place + right + 1;
    if (chunk > 0) {
      const int32_t begin = (place >= 0 ? place / chunk : (place + 1) / chunk - 1) * chunk;
      if (begin > seen.first) seen.first = begin;
      if (begin + chunk < seen.end) seen.end = begin + chunk;
    }
    return seen;
  }
  // Of rows `row` to row + rows - 1, of which the first exists. Both ends of the intervals rise
  // with the row, so the first and the last row bound them all.
  HT_HOST_DEVICE KeyTiles tiles(int32_t row, int32_t rows, int32_t tile) const {
    const KeyInterval top = keys(row),
                      bottom = keys((row + rows < queries ? row + rows : queries) - 1);
    if (top.first >= bottom.end) return {0, 0, 0, 0};
    const int32_t full_end = top.end > 0 ? top.end / tile : 0;
    return {static_cast<uint32_t>(top.first / tile),
            static_cast<uint32_t>((bottom.end + tile - 1) / tile),
            static_cast<uint32_t>((bottom.first + tile - 1) / tile),
            static_cast<uint32_t>(full_end)};
  }
};

}  // namespace halftone

// Iteration over the rows of K and V, contiguous or paged, in key order, and software prefetch.
#pragma once
#include "ops/attention/cpu/dequantise.h"

namespace halftone::HALFTONE_LEVEL {

// A row and its scales.
struct RowPointer {
  const uint8_t* data;
  const uint8_t* scales;
};

// Walks the rows of a head key by key; divides once a page, or once for rows that share a scale.
class RowCursor {
 public:
  HALFTONE_INLINE RowCursor(const AttentionRows& rows, int64_t key, int64_t head)
      : rows_(rows), head_(head), key_(key) {}
  // The row of the next key.
  HALFTONE_INLINE RowPointer next() {
    if (left_ == 0) seek();
    const RowPointer row = row_;
    row_.data += rows_.row_bytes;
    if (rows_.scales != nullptr) row_.scales += rows_.scale_row_bytes;
    --left_;
    ++key_;
    return row;
  }
  // Whether the next `count` rows are contiguous; *row is the first.
  HALFTONE_INLINE bool next_contiguous(int64_t count, RowPointer* row) {
    if (left_ == 0) seek();
    if (left_ < count) return false;
    *row = row_;
    row_.data += count * rows_.row_bytes;
    if (rows_.scales != nullptr) row_.scales += count * rows_.scale_row_bytes;
    left_ -= count;
    key_ += count;
    return true;
  }

 private:
  HALFTONE_INLINE void seek() {
    int64_t page = 0, row = key_;
    left_ = int64_t{1} << 62;
    if (rows_.pages != nullptr) {
      page = rows_.pages[key_ / rows_.page_size];
      row = key_ % rows_.page_size;
      left_ = rows_.page_size - row;
    }
    if (const int64_t shared = rows_.scale_rows; shared > 0) {
      const int64_t rest = shared - row % shared;
      left_ = rest < left_ ? rest : left_;
    }
    row_.data =
        rows_.data + page * rows_.page_bytes + row * rows_.row_bytes + head_ * rows_.head_bytes;
    row_.scales = rows_.scales;
    if (rows_.scales != nullptr) {
      row_.scales += page * rows_.scale_page_bytes + row * rows_.scale_row_bytes +
                     head_ * rows_.scale_head_bytes;
      if (rows_.scale_rows > 0) row_.scales += row / rows_.scale_rows * rows_.scale_rows_bytes;
    }
  }
  const AttentionRows& rows_;
  const int64_t head_;
  int64_t key_, left_ = 0;
  RowPointer row_ = {};
};

// Prefetches rows of all heads, a few cache lines at a time between other work, so that the queue
// of outstanding lines neither overflows nor runs dry. Inlined by force: GCC takes a function of
// prefetches alone for one without effect and drops its calls.
class Prefetcher {
 public:
  HALFTONE_INLINE Prefetcher(const AttentionRows& rows, int64_t heads, int64_t row_bytes,
                             int64_t first, int64_t end)
      : cursor_(rows, first, 0),
        bytes_(rows.head_bytes == row_bytes ? heads * row_bytes : row_bytes),
        left_(end - first) {}
  HALFTONE_INLINE void step(int64_t lines) {
    for (int64_t i = 0; i < lines; ++i) {
      if (offset_ >= bytes_) {
        if (left_ <= 0) return;
        --left_;
        row_ = cursor_.next();
        offset_ = 0;
        if (row_.scales != nullptr) __builtin_prefetch(row_.scales, 0, 2);
      }
      __builtin_prefetch(row_.data + offset_, 0, 2);
      offset_ += 64;
    }
  }

 private:
  RowCursor cursor_;
  RowPointer row_ = {};
  const int64_t bytes_;
  int64_t left_, offset_ = int64_t{1} << 62;
};

// Prefetches rows [first, end) of K and V of one head in `steps` steps. Inlined by force: see
// Prefetcher.
class ChunkPrefetcher {
 public:
  HALFTONE_INLINE ChunkPrefetcher(const AttentionTile& t, int64_t first, int64_t end, int64_t steps)
      : keys_(t.k, 1, row_bytes(t.k, t.head_dim), first, end),
        values_(t.v, 1, row_bytes(t.v, t.value_dim), first, end),
        key_lines_(lines_of(t.k, t.head_dim, end - first, steps)),
        value_lines_(lines_of(t.v, t.value_dim, end - first, steps)) {}
  HALFTONE_INLINE void step() {
    keys_.step(key_lines_);
    values_.step(value_lines_);
  }

 private:
  static HALFTONE_INLINE int64_t row_bytes(const AttentionRows& rows, int64_t count) {
    return (count * element_bits(rows.format) + 7) / 8;
  }
  static HALFTONE_INLINE int64_t lines_of(const AttentionRows& rows, int64_t count, int64_t keys,
                                          int64_t steps) {
    return (keys * ((row_bytes(rows, count) + 63) / 64) + steps - 1) / steps;
  }
  Prefetcher keys_, values_;
  int64_t key_lines_, value_lines_;
};

// Prefetches rows evenly between the work, 64 rows at a time: four streams in memory order, each
// over 16 of them. One stream alone would stall at every new page (docs/findings/cpu-decode.md).
// Where the rows of the heads are not contiguous, those of all heads but the first are left to the
// hardware prefetcher. Inlined by force: see Prefetcher.
class LinePrefetcher {
 public:
  static constexpr int kStreams = 4, kStreamRows = 16;
  // Rows first .. end, a multiple of 64.
  HALFTONE_INLINE LinePrefetcher(const AttentionRows& rows, int64_t heads, int64_t row_bytes,
                                 const RowPointer* first, const RowPointer* end)
      : row_(first),
        end_(end),
        bytes_(rows.head_bytes == row_bytes ? heads * row_bytes : row_bytes) {}
  // Prefetches `kLines` lines, on average.
  template <int kLines>
  HALFTONE_INLINE void step() {
    if (row_ == end_) return;
    if constexpr (kLines < kStreams) {
      credit_ += kLines;
      if (credit_ < kStreams) return;
      credit_ = 0;
    }
#pragma GCC unroll 2
    for (int i = 0; i < (kLines + kStreams - 1) / kStreams; ++i) {
#pragma GCC unroll 4
      for (int w = 0; w < kStreams; ++w) {
        __builtin_prefetch(row_[w * kStreamRows].data + offset_, 0, 2);
      }
      offset_ += 64;
      if (offset_ < bytes_) continue;
      next_row();
      if (row_ == end_) return;
    }
  }

 private:
  HALFTONE_INLINE void next_row() {
    offset_ = 0;
    if (row_->scales != nullptr) {
#pragma GCC unroll 4
      for (int w = 0; w < kStreams; ++w) __builtin_prefetch(row_[w * kStreamRows].scales, 0, 2);
    }
    ++row_;
    if (++rows_done_ % kStreamRows == 0) row_ += (kStreams - 1) * kStreamRows;
  }
  const RowPointer *row_, *end_;
  const int64_t bytes_;
  int64_t offset_ = 0;
  int rows_done_ = 0, credit_ = 0;
};

HALFTONE_INLINE bool has_row_scales(const AttentionRows& rows) {
  return rows.scales != nullptr && !has_blocks(rows.format);
}

}  // namespace halftone::HALFTONE_LEVEL

// Attention of one tile: chunk by chunk S = Q K^T, softmax, O = O * keep + P V * add.
//
// Rows are taken 24 at a time against a panel of K or V, so that the panel (16 KB at head_dim 128,
// in bf16) and the scores (24 KB) stay in the first-level cache, while the packed chunk and the
// rows of the tile stay in the second.
#include "ops/attention/cpu.h"

#include "ops/attention/cpu_multiply.h"
#include "ops/attention/cpu_pack.h"
#include "ops/attention/cpu_softmax.h"
#include "ops/attention/cpu_values.h"

namespace halftone::HALFTONE_LEVEL {
namespace {

constexpr int64_t kSubRows = 24;
constexpr int64_t kStatistics = 32 + kLanes;  // kSubRows up to whole vectors

constexpr int64_t round_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}
constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Scratch of a tile. Sized for f32 products, the larger ones.
struct Scratch {
  Scratch(uint8_t* base, int64_t head_dim, int64_t value_dim, int64_t rows) {
    const int64_t chunk = attention_chunk(larger(head_dim, value_dim));
    const int64_t columns = round_up(value_dim, kPanel);
    const int64_t depth = round_up(head_dim, kLanes) + kLanes;
    offset = 0;
    q = take<uint32_t>(base, rows * depth);
    q_scales = take<float>(base, rows);
    keys = take<uint32_t>(base, chunk * depth);
    values = take<uint32_t>(base, chunk * columns);
    key_scales = take<float>(base, chunk);
    value_scales = take<float>(base, chunk);
    scores = take<float>(base, kSubRows * chunk);
    weights = take<uint32_t>(base, kSubRows * chunk);
    o = take<float>(base, rows * columns);
    maxima = take<float>(base, rows + kStatistics);
    sums = take<float>(base, rows + kStatistics);
    expanded = take<uint32_t>(base, larger(kLanes * depth, (kStripKeys + 1) * columns + kLanes));
    few = take<float>(base, kAttentionFewRows * columns);
  }
  template <class T>
  T* take(uint8_t* base, int64_t count) {
    T* result = base == nullptr ? nullptr : reinterpret_cast<T*>(base + offset);
    offset = round_up(offset + count * static_cast<int64_t>(sizeof(T)), 64);
    return result;
  }
  uint32_t *q, *keys, *values, *weights, *expanded;
  float *q_scales, *key_scales, *value_scales, *scores, *o, *maxima, *sums, *few;
  int64_t offset;
};

template <class Products>
class Tile {
 public:
  using Element = typename Products::Element;
  static constexpr int kPair = Products::kPair;

  explicit Tile(const AttentionTile& tile)
      : t_(tile),
        rows_(tile.queries * tile.group),
        chunk_(attention_chunk(larger(tile.head_dim, tile.value_dim))),
        columns_(round_up(tile.value_dim, kPanel)),
        steps_((tile.head_dim + kPair - 1) / kPair),
        s_(tile.scratch, tile.head_dim, tile.value_dim, rows_),
        low_(low(0)),
        high_(high(rows_ - 1)) {}

  void run() {
    load_queries();
    o_ = s_.o, maxima_ = s_.maxima, sums_ = s_.sums;
    if (t_.partial == nullptr) clear();
    for (int64_t c = t_.first_chunk; c < t_.end_chunk; ++c) {
      if (t_.partial != nullptr) {
        o_ = t_.partial + (c - t_.first_chunk) * t_.partial_stride;
        maxima_ = o_ + rows_ * columns_;
        sums_ = maxima_ + rows_ + kStatistics;
        clear();
      }
      process_chunk(c * chunk_);
    }
    if (t_.partial == nullptr) finish();
  }

  void merge() {
    o_ = s_.o, maxima_ = s_.maxima, sums_ = s_.sums;
    clear();
    for (int64_t c = 0; c < t_.end_chunk - t_.first_chunk; ++c) {
      const float* part = t_.partial + c * t_.partial_stride;
      const float* part_maxima = part + rows_ * columns_;
      for (int64_t r = 0; r < rows_; r += kSubRows) {
        const int64_t count = smaller(kSubRows, rows_ - r);
        float maxima[kStatistics], sums[kStatistics], keep[kStatistics], add[kStatistics];
        for (int64_t i = 0; i < kStatistics; ++i) {
          maxima[i] = i < count ? part_maxima[r + i] : kMinusInfinity;
          sums[i] = i < count ? part_maxima[rows_ + kStatistics + r + i] : 0.0f;
        }
        fold_statistics(r, maxima, sums, keep, add);
        for (int64_t i = 0; i < count; ++i) {
          float* o = o_ + (r + i) * columns_;
          const float* p = part + (r + i) * columns_;
          fold_row(o, p, keep[i], add[i]);
        }
      }
    }
    finish();
  }

 private:
  int64_t low(int64_t row) const { return larger(0, t_.range_begin + row / t_.group); }
  int64_t high(int64_t row) const { return smaller(t_.keys, t_.range_end + row / t_.group); }

  void clear() {
    __builtin_memset(o_, 0, static_cast<size_t>(rows_ * columns_) * 4);
    for (int64_t i = 0; i < rows_ + kStatistics; ++i) maxima_[i] = kMinusInfinity, sums_[i] = 0;
  }

  void load_queries() {
    const auto expand = expand_rows_of<Element>(t_.q_format);
    auto* row = reinterpret_cast<Element*>(s_.expanded);
    const bool scaled = t_.q_scales != nullptr && !has_blocks(t_.q_format);
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t query = r / t_.group, head = r % t_.group;
      const uint8_t* scales = t_.q_scales;
      if (scales != nullptr) {
        scales += query * t_.q_scale_query_bytes + head * t_.q_scale_head_bytes;
      }
      const RowToExpand<Element> source{t_.q + query * t_.q_query_bytes + head * t_.q_head_bytes,
                                        scales, row};
      expand(&source, 1, t_.head_dim, steps_ * kPair);
      __builtin_memcpy(s_.q + r * steps_, row, static_cast<size_t>(steps_) * 4);
      float scale = 1;
      if (scaled) std::memcpy(&scale, scales, 4);
      s_.q_scales[r] = t_.score_scale * scale;
    }
  }

  void process_chunk(int64_t base) {
    int64_t keys_ready = -1, values_ready = -1;  // panels packed so far, from the first one needed
    for (int64_t r = 0; r < rows_; r += kSubRows) {
      const int64_t count = smaller(kSubRows, rows_ - r);
      const int64_t begin = larger(low(r) - base, 0) / kPanel;
      const int64_t end = (smaller(high(r + count - 1) - base, chunk_) + kPanel - 1) / kPanel;
      if (begin >= end) continue;
      if (keys_ready < 0) keys_ready = values_ready = begin;

      for (int64_t p = begin; p < end; ++p) {
        uint32_t* panel = s_.keys + p * kPanel * steps_;
        if (p >= keys_ready) {
          pack_keys<Products>(t_.k, t_.head_dim, base + p * kPanel, low_, high_, panel,
                              s_.key_scales + p * kPanel, s_.expanded,
                              round_up(steps_, kLanes) + kLanes);
          keys_ready = p + 1;
        }
        multiply<Products>(count, s_.q + r * steps_, steps_, panel, steps_, kVectors,
                           {s_.scores + p * kPanel, chunk_, nullptr, nullptr});
      }

      float maxima[kStatistics], sums[kStatistics], keep[kStatistics], add[kStatistics];
      for (int64_t i = 0; i < kStatistics; ++i) maxima[i] = kMinusInfinity, sums[i] = 0;
      const float* key_scales = has_row_scales(t_.k) ? s_.key_scales : nullptr;
      const float* value_scales = has_row_scales(t_.v) ? s_.value_scales : nullptr;
      const bool few = rows_ <= kAttentionFewRows;
      if (few) load_value_scales(base, begin * kPanel, end * kPanel);
      for (; !few && values_ready < end; ++values_ready) {
        pack_values<Products>(t_.v, t_.value_dim, columns_, base + values_ready * kPanel, kPanel,
                              low_, high_, s_.values + values_ready * kPanel / kPair * kPanel,
                              chunk_ / kPair * kPanel, s_.value_scales + values_ready * kPanel,
                              s_.expanded);
      }
      auto* weights = reinterpret_cast<Element*>(s_.weights);
      const auto softmax = softmax_row_of<Element>(t_.rounding);
      for (int64_t i = 0; i < count; ++i) {
        const RowStatistics row = softmax(
            s_.scores + i * chunk_, weights + i * chunk_, begin * kPanel, end * kPanel,
            low(r + i) - base, high(r + i) - base, s_.q_scales[r + i], key_scales, value_scales);
        maxima[i] = row.maximum, sums[i] = row.sum;
      }
      const bool split = t_.partial != nullptr;
      if (split) {
        for (int64_t i = 0; i < count; ++i) maxima_[r + i] = maxima[i], sums_[r + i] = sums[i];
      } else {
        fold_statistics(r, maxima, sums, keep, add);
      }
      if (few) {
        multiply_few(base, begin * kPanel, end * kPanel, keep, add);
        continue;
      }
      for (int64_t c = 0; c < columns_; c += kPanel) {
        const int64_t left = t_.value_dim - c;
        const uint32_t* panel = s_.values + c * (chunk_ / kPair) + begin * kPanel / kPair * kPanel;
        multiply<Products>(count, weights + begin * kPanel, chunk_ / kPair, panel,
                           (end - begin) * kPanel / kPair,
                           static_cast<int>((smaller(left, kPanel) + kLanes - 1) / kLanes),
                           {o_ + r * columns_ + c, columns_, split ? nullptr : keep, add});
      }
    }
  }

  void load_value_scales(int64_t base, int64_t begin, int64_t end) {
    if (!has_row_scales(t_.v)) return;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t key = base + i;
      s_.value_scales[i] = 0;
      if (key >= low_ && key < high_) std::memcpy(&s_.value_scales[i], row_of(t_.v, key).scales, 4);
    }
  }

  // All rows of the tile at once. A split writes the chunk's O where it belongs.
  void multiply_few(int64_t base, int64_t begin, int64_t end, const float* keep, const float* add) {
    auto* strip = reinterpret_cast<Element*>(s_.expanded);
    Element* zeros = strip + kStripKeys * columns_;
    __builtin_memset(zeros, 0, static_cast<size_t>(columns_) * sizeof(Element));
    float* o = t_.partial != nullptr ? o_ : s_.few;
    __builtin_memset(o, 0, static_cast<size_t>(rows_ * columns_) * 4);
    multiply_values<Products>(t_.v, t_.value_dim, columns_, base + begin, end - begin, low_, high_,
                              reinterpret_cast<const Element*>(s_.weights) + begin, chunk_, rows_,
                              o, strip, zeros);
    if (t_.partial != nullptr) return;
    for (int64_t r = 0; r < rows_; ++r) {
      fold_row(o_ + r * columns_, o + r * columns_, keep[r], add[r]);
    }
  }

  // Rows r.. take in a chunk: new maxima and sums, and the factors of the old and the new O.
  void fold_statistics(int64_t r, const float* maxima, const float* sums, float* keep, float* add) {
    for (int64_t i = 0; i < smaller(kStatistics - kLanes, rows_ - r); i += kLanes) {
      const f32v before = load_raw<f32v>(maxima_ + r + i), now = load_raw<f32v>(maxima + i);
      const f32v most = max(now, before);
      const f32v shift = select(most == kMinusInfinity, f32v{}, most);
      const f32v keep_now = exp2_negative<true>(before - shift);
      const f32v add_now = exp2_negative<true>(now - shift);
      store_raw(keep + i, keep_now);
      store_raw(add + i, add_now);
      store_raw(maxima_ + r + i, most);
      store_raw(sums_ + r + i,
                fma(load_raw<f32v>(sums + i), add_now, load_raw<f32v>(sums_ + r + i) * keep_now));
    }
  }

  void fold_row(float* o, const float* part, float keep, float add) const {
    for (int64_t x = 0; x < columns_; x += kLanes) {
      store_raw(o + x, fma(load_raw<f32v>(part + x), broadcast(add),
                           load_raw<f32v>(o + x) * broadcast(keep)));
    }
  }

  template <Format F>
  static void store_row(const float* o, float factor, int64_t count, uint8_t* out) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      store<F>(out, i, load_raw<f32v>(o + i) * broadcast(factor));
    }
    if (i < count) {
      store_partial<F>(out, i, load_raw<f32v>(o + i) * broadcast(factor),
                       static_cast<int>(count - i));
    }
  }

  void finish() {
    constexpr float kLn2 = 0.693147181f;
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t query = r / t_.group, head = r % t_.group;
      const float sum = sums_[r];
      const bool empty = sum == 0;
      if (t_.lse != nullptr) {
        t_.lse[query * t_.lse_query + head * t_.lse_head] =
            empty ? kMinusInfinity : maxima_[r] * kLn2 + __builtin_logf(sum);
      }
      const float factor = empty ? 0.0f : t_.value_scale / sum;
      const float* o = o_ + r * columns_;
      uint8_t* out = t_.out + query * t_.out_query_bytes + head * t_.out_head_bytes;
      if (t_.out_format == Format::f32) {
        store_row<Format::f32>(o, factor, t_.value_dim, out);
      } else if (t_.out_format == Format::bf16) {
        store_row<Format::bf16>(o, factor, t_.value_dim, out);
      } else {
        store_row<Format::f16>(o, factor, t_.value_dim, out);
      }
    }
  }

  const AttentionTile& t_;
  const int64_t rows_, chunk_, columns_, steps_;
  Scratch s_;
  const int64_t low_, high_;
  float *o_ = nullptr, *maxima_ = nullptr, *sums_ = nullptr;
};

int64_t scratch_bytes(int64_t head_dim, int64_t value_dim, int64_t rows) {
  return Scratch(nullptr, head_dim, value_dim, rows).offset;
}

int64_t partial_floats(int64_t value_dim, int64_t rows) {
  return rows * round_up(value_dim, kPanel) + 2 * (rows + kStatistics);
}

void run_tile(const AttentionTile& tile) {
#if defined(__AVX512BF16__)
  if (tile.bf16_products) return Tile<Bf16Products>(tile).run();
#endif
  Tile<F32Products>(tile).run();
}

void merge_tile(const AttentionTile& tile) { Tile<F32Products>(tile).merge(); }

}  // namespace

extern const AttentionCpu attention_cpu;
const AttentionCpu attention_cpu = {kLanes, scratch_bytes, partial_floats, run_tile, merge_tile};

}  // namespace halftone::HALFTONE_LEVEL

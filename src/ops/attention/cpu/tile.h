// What tiles of many and of few rows share: queries in the products' format, the running maximum,
// sum and O, and the finished rows.
#pragma once
#include "ops/attention/cpu/scratch.h"
#include "ops/attention/cpu/softcap_mask.h"

namespace halftone::HALFTONE_LEVEL {

template <class Products>
class TileBase {
 public:
  using Element = typename Products::Element;
  static constexpr int kPair = Products::kPair;

  explicit TileBase(const AttentionTile& tile)
      : t_(tile),
        per_head_(tile.queries * tile.group),
        rows_(per_head_ * tile.kv_heads),
        chunk_(attention_chunk(larger(tile.head_dim, tile.value_dim))),
        columns_(round_up(tile.value_dim, kPanel)),
        steps_((tile.head_dim + kPair - 1) / kPair),
        s_(tile.scratch, tile.head_dim, tile.value_dim, per_head_, tile.kv_heads, tile.few),
        low_(low(0)),
        high_(high(rows_ - 1)),
        softmax_(softmax_row_of<Element>(tile.rounding)) {}

  // process_chunk(base) adds the keys of a chunk.
  template <class ProcessChunk>
  void run_chunks(const ProcessChunk& process_chunk) {
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
      const float* maxima = part + rows_ * columns_;
      fold(part, maxima, maxima + rows_ + kStatistics);
    }
    finish();
  }

 protected:
  int64_t query_of(int64_t row) const { return row % per_head_ / t_.group; }
  int64_t head_of(int64_t row) const {  // of all heads of the tile
    return row / per_head_ * t_.group + row % t_.group;
  }
  int64_t low(int64_t row) const {
    const int64_t begin = larger(0, t_.range_begin + query_of(row));
    return t_.local_size == 0 ? begin : larger(begin, local_begin(row));
  }
  int64_t high(int64_t row) const {
    const int64_t end = smaller(t_.keys, t_.range_end + query_of(row));
    return t_.local_size == 0 ? end : smaller(end, local_begin(row) + t_.local_size);
  }
  // Of the chunk of Llama 4 in which the row's query stands; rounds down, also below 0.
  int64_t local_begin(int64_t row) const {
    const int64_t position = t_.position + query_of(row), size = t_.local_size;
    return (position < 0 ? position - size + 1 : position) / size * size;
  }

  // Softmax of row r over the scores s of keys base + [begin, end); P goes to `weights`.
  RowStatistics softmax(int64_t r, int64_t base, float* s, Element* weights, int64_t begin,
                        int64_t end, const float* key_scales, const float* value_scales) const {
    const int64_t low = this->low(r), high = this->high(r);
    float scale = s_.q_scales[r];
    if (t_.mask != nullptr || t_.softcap > 0) {
      const MaskRow mask = mask_row(t_, query_of(r), head_of(r));
      apply_rules(t_, t_.mask != nullptr ? &mask : nullptr, s, base, begin, end, low, high, scale,
                  key_scales);
      scale = 1, key_scales = nullptr;
    }
    return softmax_(s, weights, begin, end, low - base, high - base, scale, key_scales,
                    value_scales);
  }

  // O += P V of a key whose V is not finite, the numbers left out of the product, for `count` rows
  // that see it. `scores` and `weights` are those of the key and the first row.
  void add_special(int64_t head, int64_t key, const float* scores, const Element* weights,
                   int64_t count, float* o, const float* add) {
    auto* row = reinterpret_cast<Element*>(s_.expanded);
    const RowPointer source = RowCursor(t_.v, key, head).next();
    const RowToExpand<Element> to_expand{source.data, source.scales, row};
    expand_rows_of<Element>(t_.v.format)(&to_expand, 1, t_.value_dim, columns_);
    for (int64_t i = 0; i < count; ++i) {
      const float weight = as_float(weights[i * chunk_]);
      // Scores stay behind softmax but for P in NVFP4, which takes their place.
      const bool hidden = t_.rounding == AttentionRounding::nvfp4
                              ? weight == 0
                              : scores[i * chunk_] == kMinusInfinity;
      for (int64_t c = 0; !hidden && c < t_.value_dim; ++c) {
        const float value = as_float(row[c]);
        if (is_finite(value)) continue;
        o[i * columns_ + c] += weight * value * (add == nullptr ? 1 : add[i]);
      }
    }
  }

  void clear() {
    __builtin_memset(o_, 0, static_cast<size_t>(rows_ * columns_) * 4);
    for (int64_t i = 0; i < rows_ + kStatistics; ++i) maxima_[i] = kMinusInfinity, sums_[i] = 0;
  }

  void load_queries() {
    const auto expand = expand_rows_of<Element>(t_.q_format);
    auto* row = reinterpret_cast<Element*>(s_.expanded);
    const bool scaled = t_.q_scales != nullptr && !has_blocks(t_.q_format);
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t query = query_of(r), head = head_of(r);
      const uint8_t* scales = t_.q_scales;
      if (scales != nullptr) {
        scales += (t_.q_first + query) / t_.q_scale_queries * t_.q_scale_query_bytes +
                  head * t_.q_scale_head_bytes;
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

  // Takes in the unnormalised rows, maxima and sums of a chunk.
  void fold(const float* part, const float* maxima, const float* sums) {
    for (int64_t r = 0; r < rows_; r += kLanes) {
      float keep[kLanes], add[kLanes];
      fold_statistics(r, kLanes, maxima + r, sums + r, keep, add);
      for (int64_t i = 0; i < smaller(kLanes, rows_ - r); ++i) {
        float* o = o_ + (r + i) * columns_;
        const float* p = part + (r + i) * columns_;
        for (int64_t x = 0; x < columns_; x += kLanes) {
          store_raw(o + x, fma(load_raw<f32v>(p + x), broadcast(add[i]),
                               load_raw<f32v>(o + x) * broadcast(keep[i])));
        }
      }
    }
  }

  // Rows r.. take in a chunk: new maxima and sums, and the factors of the old and the new O.
  void fold_statistics(int64_t r, int64_t count, const float* maxima, const float* sums,
                       float* keep, float* add) {
    for (int64_t i = 0; i < count; i += kLanes) {
      const f32v before = load_raw<f32v>(maxima_ + r + i), now = load_raw<f32v>(maxima + i);
      const f32v most = maximum_of(now, before);
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

  // The sink is a key whose value is 0; its logit may exceed every score.
  static void add_sink(float logit, float* sum, float* maximum, float* value_scale) {
    const float sink = logit * 1.44269504f, most = sink > *maximum ? sink : *maximum;
    if (most == kMinusInfinity) return;
    if (sink == -kMinusInfinity) {  // takes all
      *sum = 1, *value_scale = 0, *maximum = sink;
      return;
    }
    const float keep = exp2_negative<true>(broadcast(*maximum - most))[0];
    *sum = *sum * keep + exp2_negative<true>(broadcast(sink - most))[0];
    *value_scale *= keep;
    *maximum = most;
  }

  void finish() {
    constexpr float kLn2 = 0.693147181f;
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t query = query_of(r), head = head_of(r);
      float sum = sums_[r], maximum = maxima_[r], value_scale = t_.value_scale;
      if (t_.sinks != nullptr)
        add_sink(t_.sinks[head * t_.sink_stride], &sum, &maximum, &value_scale);
      const bool empty = sum == 0;
      if (t_.lse != nullptr) {
        const float norm = t_.lse_without_sink ? sums_[r] : sum;
        const float most = t_.lse_without_sink ? maxima_[r] : maximum;
        t_.lse[query * t_.lse_query + head * t_.lse_head] =
            norm == 0 ? kMinusInfinity : most * kLn2 + __builtin_logf(norm);
      }
      const float factor = empty ? 0.0f : value_scale / sum;
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
  const int64_t per_head_, rows_, chunk_, columns_, steps_;
  Scratch s_;
  const int64_t low_, high_;
  const SoftmaxRow<Element> softmax_;
  float *o_ = nullptr, *maxima_ = nullptr, *sums_ = nullptr;
};

}  // namespace halftone::HALFTONE_LEVEL

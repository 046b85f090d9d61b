// What prefill and decode tiles share on the CPU: Q in the format of the dot products, the running
// row_max, row_sum and O, and the finished rows.
#pragma once
#include "ops/attention/cpu/scratch.h"
#include "ops/attention/cpu/softcap_mask.h"

namespace halftone::HALFTONE_LEVEL {

template <class Dot>
class TileBase {
 public:
  using Element = typename Dot::Element;
  static constexpr int kPair = Dot::kPair;

  explicit TileBase(const AttentionTile& tile)
      : t_(tile),
        per_head_(tile.queries * tile.group),
        rows_(per_head_ * tile.kv_heads),
        chunk_(attention_chunk(larger(tile.head_dim, tile.value_dim))),
        columns_(round_up(tile.value_dim, kPanel)),
        steps_((tile.head_dim + kPair - 1) / kPair),
        s_(tile.scratch, tile.head_dim, tile.value_dim, per_head_, tile.kv_heads, tile.is_decode),
        low_(low(0)),
        high_(high(rows_ - 1)),
        softmax_(softmax_row_of<Element>(tile.rounding)) {}

  // process_chunk(base) processes the keys of a chunk.
  template <class ProcessChunk>
  void run_chunks(const ProcessChunk& process_chunk) {
    load_queries();
    o_ = s_.o, maxima_ = s_.maxima, sums_ = s_.sums;
    if (t_.partial == nullptr) clear();
    for (int64_t c = t_.first_chunk; c < t_.end_chunk; ++c) {
      if (t_.partial != nullptr) {
        o_ = t_.partial + (c - t_.first_chunk) * t_.partial_stride;
        maxima_ = o_ + rows_ * columns_;
        sums_ = maxima_ + rows_ + kPaddedSubRows;
        clear();
      }
      process_chunk(c * chunk_);
    }
    if (t_.partial == nullptr) finish();
  }

  void combine() {
    o_ = s_.o, maxima_ = s_.maxima, sums_ = s_.sums;
    clear();
    for (int64_t c = 0; c < t_.end_chunk - t_.first_chunk; ++c) {
      const float* partial_o = t_.partial + c * t_.partial_stride;
      const float* maxima = partial_o + rows_ * columns_;
      accumulate_chunk(partial_o, maxima, maxima + rows_ + kPaddedSubRows);
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
  // Start of the attention chunk (Llama 4) that the row's query is in; rounds down, also below 0.
  int64_t local_begin(int64_t row) const {
    const int64_t position = t_.position + query_of(row), size = t_.local_size;
    return (position < 0 ? position - size + 1 : position) / size * size;
  }

  // Softmax of row r over the scores s of keys base + [begin, end); P goes to `probs`.
  RowStats softmax(int64_t r, int64_t base, float* s, Element* probs, int64_t begin, int64_t end,
                   const float* key_scales, const float* value_scales) const {
    const int64_t low = this->low(r), high = this->high(r);
    float scale = s_.q_scales[r];
    if (t_.mask != nullptr || t_.softcap > 0) {
      const MaskRow mask = mask_row(t_, query_of(r), head_of(r));
      apply_score_mod(t_, t_.mask != nullptr ? &mask : nullptr, s, base, begin, end, low, high,
                      scale, key_scales);
      scale = 1, key_scales = nullptr;
    }
    return softmax_(s, probs, begin, end, low - base, high - base, scale, key_scales, value_scales);
  }

  // O += P V for the values of one key that are not finite and were left out of the GEMM, for the
  // rows among `count` to which it is visible. `scores` and `probs` are those of the key and the
  // first row.
  void add_non_finite(int64_t head, int64_t key, const float* scores, const Element* probs,
                      int64_t count, float* o, const float* pv_scale) {
    auto* row = reinterpret_cast<Element*>(s_.dequantised);
    const RowPointer source = RowCursor(t_.v, key, head).next();
    const RowToDequantise<Element> to_dequantise{source.data, source.scales, row};
    dequantise_rows_of<Element>(t_.v.format)(&to_dequantise, 1, t_.value_dim, columns_);
    for (int64_t i = 0; i < count; ++i) {
      const float prob = as_float(probs[i * chunk_]);
      // The scores are still there after softmax, except with P in NVFP4, which overwrites them.
      const bool masked = t_.rounding == AttentionRounding::nvfp4
                              ? prob == 0
                              : scores[i * chunk_] == kMinusInfinity;
      for (int64_t c = 0; !masked && c < t_.value_dim; ++c) {
        const float value = as_float(row[c]);
        if (is_finite(value)) continue;
        o[i * columns_ + c] += prob * value * (pv_scale == nullptr ? 1 : pv_scale[i]);
      }
    }
  }

  void clear() {
    __builtin_memset(o_, 0, static_cast<size_t>(rows_ * columns_) * 4);
    for (int64_t i = 0; i < rows_ + kPaddedSubRows; ++i) maxima_[i] = kMinusInfinity, sums_[i] = 0;
  }

  void load_queries() {
    const auto dequantise = dequantise_rows_of<Element>(t_.q_format);
    auto* row = reinterpret_cast<Element*>(s_.dequantised);
    const bool scaled = t_.q_scales != nullptr && !has_blocks(t_.q_format);
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t query = query_of(r), head = head_of(r);
      const uint8_t* scales = t_.q_scales;
      if (scales != nullptr) {
        scales += (t_.q_first + query) / t_.q_scale_queries * t_.q_scale_query_bytes +
                  head * t_.q_scale_head_bytes;
      }
      const RowToDequantise<Element> source{
          t_.q + query * t_.q_query_bytes + head * t_.q_head_bytes, scales, row};
      dequantise(&source, 1, t_.head_dim, steps_ * kPair);
      __builtin_memcpy(s_.q + r * steps_, row, static_cast<size_t>(steps_) * 4);
      float scale = 1;
      if (scaled) std::memcpy(&scale, scales, 4);
      s_.q_scales[r] = t_.score_scale * scale;
    }
  }

  // Accumulates the unnormalised O, row_max and row_sum of a chunk.
  void accumulate_chunk(const float* partial_o, const float* maxima, const float* sums) {
    for (int64_t r = 0; r < rows_; r += kLanes) {
      float o_scale[kLanes], pv_scale[kLanes];
      update_stats(r, kLanes, maxima + r, sums + r, o_scale, pv_scale);
      for (int64_t i = 0; i < smaller(kLanes, rows_ - r); ++i) {
        float* o = o_ + (r + i) * columns_;
        const float* p = partial_o + (r + i) * columns_;
        for (int64_t x = 0; x < columns_; x += kLanes) {
          store_raw(o + x, fma(load_raw<f32v>(p + x), broadcast(pv_scale[i]),
                               load_raw<f32v>(o + x) * broadcast(o_scale[i])));
        }
      }
    }
  }

  // Updates row_max and row_sum of rows r.. by a chunk, and gives the factors of the old O and of
  // the chunk's.
  void update_stats(int64_t r, int64_t count, const float* maxima, const float* sums,
                    float* o_scale, float* pv_scale) {
    for (int64_t i = 0; i < count; i += kLanes) {
      const f32v old_max = load_raw<f32v>(maxima_ + r + i), chunk_max = load_raw<f32v>(maxima + i);
      const f32v new_max = maximum_of(chunk_max, old_max);
      const f32v reference = select(new_max == kMinusInfinity, f32v{}, new_max);
      const f32v o_scale_now = exp2_negative<true>(old_max - reference);
      const f32v pv_scale_now = exp2_negative<true>(chunk_max - reference);
      store_raw(o_scale + i, o_scale_now);
      store_raw(pv_scale + i, pv_scale_now);
      store_raw(maxima_ + r + i, new_max);
      store_raw(sums_ + r + i, fma(load_raw<f32v>(sums + i), pv_scale_now,
                                   load_raw<f32v>(sums_ + r + i) * o_scale_now));
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
    const float sink = logit * 1.44269504f, new_max = sink > *maximum ? sink : *maximum;
    if (new_max == kMinusInfinity) return;
    if (sink == -kMinusInfinity) {  // takes all the prob
      *sum = 1, *value_scale = 0, *maximum = sink;
      return;
    }
    const float rescale = exp2_negative<true>(broadcast(*maximum - new_max))[0];
    *sum = *sum * rescale + exp2_negative<true>(broadcast(sink - new_max))[0];
    *value_scale *= rescale;
    *maximum = new_max;
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
        const float divisor = t_.lse_without_sink ? sums_[r] : sum;
        const float row_max = t_.lse_without_sink ? maxima_[r] : maximum;
        t_.lse[query * t_.lse_query + head * t_.lse_head] =
            divisor == 0 ? kMinusInfinity : row_max * kLn2 + __builtin_logf(divisor);
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

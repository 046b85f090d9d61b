// Decode tiles on the CPU: all KV heads together, each cache row read once, in memory order,
// prefetched a panel of keys ahead of the GEMMs.
#pragma once
#include "ops/attention/cpu/decode_values.h"
#include "ops/attention/cpu/pack.h"
#include "ops/attention/cpu/tile.h"

namespace halftone::HALFTONE_LEVEL {

#if defined(__AVX512BF16__)
// Whether K and V have kernels that dequantise them in registers.
template <class Dot>
bool dequantises_in_registers(const AttentionTile& t) {
  return key_scorer_of<Dot>(t.k.format).score != nullptr &&
         decode_values_of<Dot>(t.v.format, t.value_dim) != nullptr;
}
#endif

template <class Dot>
class DecodeTile : public TileBase<Dot> {
  using Base = TileBase<Dot>;
  using Base::chunk_, Base::columns_, Base::high_, Base::low_, Base::per_head_, Base::rows_,
      Base::s_, Base::steps_, Base::t_;
  using typename Base::Element;

 public:
  using Base::Base;
  void run() {
    this->run_chunks([this](int64_t base) { process_chunk(base); });
  }

 private:
  // Prefetcher of the rows of all heads from key `first` on.
  Prefetcher prefetcher_for(const AttentionRows& rows, int64_t dim, int64_t first,
                            int64_t count) const {
    return Prefetcher(rows, t_.kv_heads, dim * element_bits(rows.format) / 8, first,
                      smaller(first + count, high_));
  }

  void process_chunk(int64_t base) {
    const int64_t begin = larger(low_ - base, 0) / kPanel * kPanel;
    const int64_t end = round_up(smaller(high_ - base, chunk_), kPanel);
    if (begin >= end) return;

#if defined(__AVX512BF16__)
    if (dequantises_in_registers<Dot>(t_)) return decode_chunk(base, begin, end);
#endif

    // Cache lines of a head's rows, spread over the squares of a panel and the steps of a strip.
    const int64_t k_lines = t_.head_dim * element_bits(t_.k.format) / 512 + 1;
    const int64_t v_lines = t_.value_dim * element_bits(t_.v.format) / 512 + 1;
    const int64_t squares = round_up(steps_, kLanes) / kLanes * kVectors;
    const int64_t gemm_steps = columns_ / kPanel * ((per_head_ + 3) / 4) / Dot::kPair;
    for (int64_t p = begin; p < end; p += kPanel) {
      Prefetcher prefetcher = p + kPanel < end
                                  ? prefetcher_for(t_.k, t_.head_dim, base + p + kPanel, kPanel)
                                  : prefetcher_for(t_.v, t_.value_dim, base + begin, kPanel);
      const int64_t lines = (larger(k_lines, v_lines) * kPanel + squares - 1) / squares;
      for (int64_t h = 0; h < t_.kv_heads; ++h) {
        pack_keys<Dot>(t_.k, h, t_.head_dim, base + p, low_, high_, s_.keys,
                       s_.key_scales + h * chunk_ + p, s_.dequantised,
                       round_up(steps_, kLanes) + kLanes, &prefetcher, lines);
        gemm<Dot>(per_head_, s_.q + h * per_head_ * steps_, steps_, s_.keys, steps_, kVectors,
                  {s_.scores + h * per_head_ * chunk_ + p, chunk_, nullptr, nullptr},
                  static_cast<ChunkPrefetcher*>(nullptr));
      }
    }

    // With split-KV the chunk's results are written to the partials directly.
    const bool split = t_.partial != nullptr;
    float* o = split ? this->o_ : s_.chunk_o;
    float* maxima = split ? this->maxima_ : s_.chunk_maxima;
    float* sums = split ? this->sums_ : s_.chunk_sums;
    auto* probs = reinterpret_cast<Element*>(s_.probs);
    load_value_scales(base, begin, end);
    softmax_rows(base, begin, end, probs, maxima, sums);

    auto* strip = reinterpret_cast<Element*>(s_.dequantised);
    Element* zeros = strip + kStripKeys * columns_;
    __builtin_memset(zeros, 0, static_cast<size_t>(columns_) * sizeof(Element));
    __builtin_memset(o, 0, static_cast<size_t>(rows_ * columns_) * 4);
    for (int64_t p = begin; p < end; p += kStripKeys) {
      const int64_t count = smaller(kStripKeys, end - p);
      const int64_t next = p + larger(kPanel, kStripKeys);
      Prefetcher prefetcher =
          next < end ? prefetcher_for(t_.v, t_.value_dim, base + next, count)
                     : prefetcher_for(t_.k, t_.head_dim, base + chunk_ + next - end, count);
      const int64_t lines = larger(1, larger(k_lines, v_lines) / larger(1, gemm_steps));
      for (int64_t h = 0; h < t_.kv_heads; ++h) {
        gemm_pv<Dot>(t_.v, h, t_.value_dim, columns_, base + p, count, low_, high_,
                     probs + h * per_head_ * chunk_ + p, chunk_, per_head_,
                     o + h * per_head_ * columns_, strip, zeros, &prefetcher, lines);
      }
    }
    exclude_non_finite(
        base, begin, end, probs, o, [&](const AttentionRows& v, int64_t h, float* head_o) {
          Prefetcher none(v, 1, 0, 0, 0);
          for (int64_t p = begin; p < end; p += kStripKeys) {
            gemm_pv<Dot>(v, 0, t_.value_dim, columns_, p, smaller(kStripKeys, end - p), low_ - base,
                         high_ - base, probs + h * per_head_ * chunk_ + p, chunk_, per_head_,
                         head_o, strip, zeros, &none, 0);
          }
        });
    if (!split) this->accumulate_chunk(o, maxima, sums);
  }

#if defined(__AVX512BF16__)
  // The same with K and V dequantised in registers.
  void decode_chunk(int64_t base, int64_t begin, int64_t end) {
    const KeyScorer scorer = key_scorer_of<Dot>(t_.k.format);
    const DecodeValues add = decode_values_of<Dot>(t_.v.format, t_.value_dim);
    constexpr int64_t kPrefetchKeys = kDecodeStrip;
    constexpr int64_t kMostKeys = attention_chunk(1);
    const int64_t count = end - begin;
    RowPointer k_rows[kMostKeys + kPrefetchKeys], v_rows[kMostKeys + kPrefetchKeys];
    list_rows(t_.k, base + begin, count, low_, high_, k_rows);
    list_rows(t_.v, base + begin, count, low_, high_, v_rows);
    for (int64_t i = 0; i < kPrefetchKeys; ++i) k_rows[count + i] = v_rows[i];
    if (base + end < high_) {
      list_rows(t_.k, base + end, kPrefetchKeys, low_, high_, v_rows + count);
    } else {
      for (int64_t i = 0; i < kPrefetchKeys; ++i) v_rows[count + i] = v_rows[count - 1];
    }
    if (packed_ == nullptr) {
      packed_ = reinterpret_cast<uint8_t*>(s_.packed_q);
      scorer.pack(s_.q, steps_, t_.kv_heads, per_head_, t_.head_dim, packed_);
    }
    scorer.score({t_.k, t_.head_dim, t_.kv_heads, per_head_, steps_, s_.q, packed_,
                  s_.scores + begin, chunk_, kPrefetchKeys},
                 k_rows, count);
    gather_scales(t_.k, k_rows, count, s_.key_scales + begin);
    gather_scales(t_.v, v_rows, count, s_.value_scales + begin);

    const bool split = t_.partial != nullptr;
    float* o = split ? this->o_ : s_.chunk_o;
    float* maxima = split ? this->maxima_ : s_.chunk_maxima;
    float* sums = split ? this->sums_ : s_.chunk_sums;
    auto* probs = reinterpret_cast<Element*>(s_.probs);
    softmax_rows(base, begin, end, probs, maxima, sums);
    __builtin_memset(o, 0, static_cast<size_t>(rows_ * columns_) * 4);
    add({t_.v, t_.value_dim, t_.kv_heads, per_head_,
         reinterpret_cast<const uint8_t*>(probs + begin), chunk_, o, kPrefetchKeys,
         reinterpret_cast<uint8_t*>(s_.dequantised)},
        v_rows, count);
    exclude_non_finite(
        base, begin, end, probs, o, [&](const AttentionRows& v, int64_t h, float* head_o) {
          list_rows(v, begin, count, low_ - base, high_ - base, v_rows);
          add({v, t_.value_dim, 1, per_head_,
               reinterpret_cast<const uint8_t*>(probs + h * per_head_ * chunk_ + begin), chunk_,
               head_o, 0, reinterpret_cast<uint8_t*>(s_.dequantised)},
              v_rows, count);
        });
    if (!split) this->accumulate_chunk(o, maxima, sums);
  }

  // Keys masked for all rows, outside [low, high), are replaced by one that is visible to some row:
  // their P is 0.
  void list_rows(const AttentionRows& rows, int64_t first, int64_t count, int64_t low, int64_t high,
                 RowPointer* list) const {
    RowCursor cursor(rows, larger(first, low), 0);
    const int64_t leading = smaller(count, larger(0, low - first));
    int64_t i = leading;
    for (; i < count && first + i < high; ++i) list[i] = cursor.next();
    for (; i < count; ++i) list[i] = list[i - 1];
    for (int64_t j = 0; j < leading; ++j) list[j] = list[leading];
  }
  // The scales of rows, head by head.
  void gather_scales(const AttentionRows& rows, const RowPointer* list, int64_t count,
                     float* scales) const {
    for (int64_t i = 0; has_row_scales(rows) && i < count; ++i) {
      for (int64_t h = 0; h < t_.kv_heads; ++h) {
        std::memcpy(scales + h * chunk_ + i, list[i].scales + h * rows.scale_head_bytes, 4);
      }
    }
  }
  uint8_t* packed_ = nullptr;
#endif

  // A V that is not finite makes NaN of the P = 0 of rows for which its key is masked: heads with
  // such an O are computed again, by V without the values that are not finite, and those are added
  // to the rows to which they are visible. gemm(v, head, o) adds to the head's O.
  template <class Multiply>
  void exclude_non_finite(int64_t base, int64_t begin, int64_t end, const Element* probs, float* o,
                          const Multiply& gemm) {
    const bool masked = t_.mask != nullptr || this->low(rows_ - 1) > low_ || this->high(0) < high_;
    for (int64_t h = 0; masked && h < t_.kv_heads; ++h) {
      float* head_o = o + h * per_head_ * columns_;
      if (!has_non_finite(head_o, per_head_ * columns_)) continue;
      NonFiniteKeys non_finite;
      const AttentionRows v = without_non_finite(
          t_.v, h, t_.value_dim, columns_, base, larger(begin, low_ - base),
          smaller(end, high_ - base), chunk_, reinterpret_cast<uint8_t*>(s_.values),
          reinterpret_cast<Element*>(s_.dequantised), &non_finite);
      if (non_finite.count == 0) continue;
      __builtin_memset(head_o, 0, static_cast<size_t>(per_head_ * columns_) * 4);
      gemm(v, h, head_o);
      for (int64_t i = 0; i < non_finite.count; ++i) {
        const int64_t at = h * per_head_ * chunk_ + non_finite.key[i];
        this->add_non_finite(h, base + non_finite.key[i], s_.scores + at, probs + at, per_head_,
                             head_o, nullptr);
      }
    }
  }

  void load_value_scales(int64_t base, int64_t begin, int64_t end) {
    for (int64_t h = 0; has_row_scales(t_.v) && h < t_.kv_heads; ++h) {
      float* value_scales = s_.value_scales + h * chunk_;
      RowCursor cursor(t_.v, larger(base + begin, low_), h);
      for (int64_t i = begin; i < end; ++i) {
        value_scales[i] = 0;
        if (base + i < low_ || base + i >= high_) continue;
        std::memcpy(value_scales + i, cursor.next().scales, 4);
      }
    }
  }

  void softmax_rows(int64_t base, int64_t begin, int64_t end, Element* probs, float* maxima,
                    float* sums) {
    const bool key_scaled = has_row_scales(t_.k), value_scaled = has_row_scales(t_.v);
    for (int64_t h = 0; h < t_.kv_heads; ++h) {
      const float* value_scales = s_.value_scales + h * chunk_;
      for (int64_t r = h * per_head_; r < (h + 1) * per_head_; ++r) {
        const RowStats row =
            this->softmax(r, base, s_.scores + r * chunk_, probs + r * chunk_, begin, end,
                          key_scaled ? s_.key_scales + h * chunk_ : nullptr,
                          value_scaled ? value_scales : nullptr);
        maxima[r] = row.maximum, sums[r] = row.sum;
      }
    }
    for (int64_t i = rows_; i < rows_ + kPaddedSubRows; ++i)
      maxima[i] = kMinusInfinity, sums[i] = 0;
  }
};

}  // namespace halftone::HALFTONE_LEVEL

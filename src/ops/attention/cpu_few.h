// Tiles of few rows (decode): all KV heads together, each cache row read once, in the order in
// which the cache lies, a panel of keys ahead of the products.
#pragma once
#include "ops/attention/cpu_tile.h"

namespace halftone::HALFTONE_LEVEL {

template <class Products>
class FewRowsTile : public TileBase<Products> {
  using Base = TileBase<Products>;
  using Base::chunk_, Base::columns_, Base::high_, Base::low_, Base::per_head_, Base::rows_,
      Base::s_, Base::steps_, Base::t_;
  using typename Base::Element;

 public:
  using Base::Base;
  void run() {
    this->run_chunks([this](int64_t base) { process_chunk(base); });
  }

 private:
  // Keys [first, first + count) of all heads, spread over the heads' turns. Inlined by force: GCC
  // takes a function of prefetches alone for one without effect and drops the calls.
  HALFTONE_INLINE void prefetch(const AttentionRows& rows, int64_t dim, int64_t first, int64_t count,
                int64_t head) const {
    const int64_t share = (count + t_.kv_heads - 1) / t_.kv_heads;
    const int64_t end = smaller(smaller(first + count, first + (head + 1) * share), high_);
    const int64_t row_bytes = dim * element_bits(rows.format) / 8;
    for (int64_t key = first + head * share; key < end; ++key) {
      const RowPointer row = row_of(rows, key, 0);
      if (rows.head_bytes == row_bytes) {  // the usual layout: heads side by side
        for (int64_t i = 0; i < row_bytes * t_.kv_heads; i += 64) {
          __builtin_prefetch(row.data + i, 0, 2);
        }
      } else {
        for (int64_t h = 0; h < t_.kv_heads; ++h) {
          __builtin_prefetch(row.data + h * rows.head_bytes, 0, 2);
        }
      }
      if (row.scales != nullptr) __builtin_prefetch(row.scales, 0, 2);
    }
  }

  void process_chunk(int64_t base) {
    const int64_t begin = larger(low_ - base, 0) / kPanel * kPanel;
    const int64_t end = round_up(smaller(high_ - base, chunk_), kPanel);
    if (begin >= end) return;

    for (int64_t p = begin; p < end; p += kPanel) {
      for (int64_t h = 0; h < t_.kv_heads; ++h) {
        if (p + kPanel < end) {
          prefetch(t_.k, t_.head_dim, base + p + kPanel, kPanel, h);
        } else {
          prefetch(t_.v, t_.value_dim, base + begin, kPanel, h);
        }
        pack_keys<Products>(t_.k, h, t_.head_dim, base + p, low_, high_, s_.keys,
                            s_.key_scales + h * chunk_ + p, s_.expanded,
                            round_up(steps_, kLanes) + kLanes);
        multiply<Products>(per_head_, s_.q + h * per_head_ * steps_, steps_, s_.keys, steps_,
                           kVectors,
                           {s_.scores + h * per_head_ * chunk_ + p, chunk_, nullptr, nullptr});
      }
    }

    // A split writes the chunk's results where they belong.
    const bool split = t_.partial != nullptr;
    float* o = split ? this->o_ : s_.chunk_o;
    float* maxima = split ? this->maxima_ : s_.chunk_maxima;
    float* sums = split ? this->sums_ : s_.chunk_sums;
    auto* weights = reinterpret_cast<Element*>(s_.weights);
    softmax(base, begin, end, weights, maxima, sums);

    auto* strip = reinterpret_cast<Element*>(s_.expanded);
    Element* zeros = strip + kStripKeys * columns_;
    __builtin_memset(zeros, 0, static_cast<size_t>(columns_) * sizeof(Element));
    __builtin_memset(o, 0, static_cast<size_t>(rows_ * columns_) * 4);
    for (int64_t p = begin; p < end; p += kStripKeys) {
      const int64_t count = smaller(kStripKeys, end - p);
      for (int64_t h = 0; h < t_.kv_heads; ++h) {
        const int64_t ahead = p + kPanel;
        if (ahead < end) {
          prefetch(t_.v, t_.value_dim, base + ahead, count, h);
        } else {
          prefetch(t_.k, t_.head_dim, base + chunk_ + ahead - end, count, h);
        }
        multiply_values<Products>(t_.v, h, t_.value_dim, columns_, base + p, count, low_, high_,
                                  weights + h * per_head_ * chunk_ + p, chunk_, per_head_,
                                  o + h * per_head_ * columns_, strip, zeros);
      }
    }
    if (!split) this->fold(o, maxima, sums);
  }

  void softmax(int64_t base, int64_t begin, int64_t end, Element* weights, float* maxima,
               float* sums) {
    const bool key_scaled = has_row_scales(t_.k), value_scaled = has_row_scales(t_.v);
    const auto row_softmax = softmax_row_of<Element>(t_.rounding);
    for (int64_t h = 0; h < t_.kv_heads; ++h) {
      float* value_scales = s_.value_scales + h * chunk_;
      for (int64_t i = begin; value_scaled && i < end; ++i) {
        const int64_t key = base + i;
        value_scales[i] = 0;
        if (key < low_ || key >= high_) continue;
        std::memcpy(value_scales + i, row_of(t_.v, key, h).scales, 4);
      }
      for (int64_t r = h * per_head_; r < (h + 1) * per_head_; ++r) {
        const RowStatistics row = row_softmax(
            s_.scores + r * chunk_, weights + r * chunk_, begin, end, this->low(r) - base,
            this->high(r) - base, s_.q_scales[r], key_scaled ? s_.key_scales + h * chunk_ : nullptr,
            value_scaled ? value_scales : nullptr);
        maxima[r] = row.maximum, sums[r] = row.sum;
      }
    }
    for (int64_t i = rows_; i < rows_ + kStatistics; ++i) maxima[i] = kMinusInfinity, sums[i] = 0;
  }
};

}  // namespace halftone::HALFTONE_LEVEL

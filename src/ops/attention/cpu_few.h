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
  // Rows of all heads from key `first` on.
  Prefetcher rows_ahead(const AttentionRows& rows, int64_t dim, int64_t first,
                        int64_t count) const {
    return Prefetcher(rows, t_.kv_heads, dim * element_bits(rows.format) / 8, first,
                      smaller(first + count, high_));
  }

  void process_chunk(int64_t base) {
    const int64_t begin = larger(low_ - base, 0) / kPanel * kPanel;
    const int64_t end = round_up(smaller(high_ - base, chunk_), kPanel);
    if (begin >= end) return;

    // Lines of a head's rows over the squares of a panel and the steps of a strip.
    const int64_t k_lines = t_.head_dim * element_bits(t_.k.format) / 512 + 1;
    const int64_t v_lines = t_.value_dim * element_bits(t_.v.format) / 512 + 1;
    const int64_t squares = round_up(steps_, kLanes) / kLanes * kVectors;
    const int64_t products = columns_ / kPanel * ((per_head_ + 3) / 4) / Products::kPair;
    for (int64_t p = begin; p < end; p += kPanel) {
      Prefetcher ahead = p + kPanel < end ? rows_ahead(t_.k, t_.head_dim, base + p + kPanel, kPanel)
                                          : rows_ahead(t_.v, t_.value_dim, base + begin, kPanel);
      const int64_t lines = (larger(k_lines, v_lines) * kPanel + squares - 1) / squares;
      for (int64_t h = 0; h < t_.kv_heads; ++h) {
        pack_keys<Products>(t_.k, h, t_.head_dim, base + p, low_, high_, s_.keys,
                            s_.key_scales + h * chunk_ + p, s_.expanded,
                            round_up(steps_, kLanes) + kLanes, &ahead, lines);
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
      const int64_t next = p + larger(kPanel, kStripKeys);
      Prefetcher ahead = next < end
                             ? rows_ahead(t_.v, t_.value_dim, base + next, count)
                             : rows_ahead(t_.k, t_.head_dim, base + chunk_ + next - end, count);
      const int64_t lines = larger(1, larger(k_lines, v_lines) / larger(1, products));
      for (int64_t h = 0; h < t_.kv_heads; ++h) {
        multiply_values<Products>(t_.v, h, t_.value_dim, columns_, base + p, count, low_, high_,
                                  weights + h * per_head_ * chunk_ + p, chunk_, per_head_,
                                  o + h * per_head_ * columns_, strip, zeros, &ahead, lines);
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
      RowCursor cursor(t_.v, larger(base + begin, low_), h);
      for (int64_t i = begin; value_scaled && i < end; ++i) {
        value_scales[i] = 0;
        if (base + i < low_ || base + i >= high_) continue;
        std::memcpy(value_scales + i, cursor.next().scales, 4);
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

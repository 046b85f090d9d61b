// CPU attention of one tile, compiled for every ISA level: chunk by chunk S = Q K^T, softmax, O = O
// * o_scale + P V * pv_scale.
#include "ops/attention/cpu/kernel.h"

#include "ops/attention/cpu/decode.h"
#include "ops/attention/cpu/pack.h"

namespace halftone::HALFTONE_LEVEL {
namespace {

// Prefill tiles, of one KV head: K and V of a chunk are packed once for all rows.
template <class Dot>
class PrefillTile : public TileBase<Dot> {
  using Base = TileBase<Dot>;
  using Base::chunk_, Base::columns_, Base::high_, Base::low_, Base::rows_, Base::s_, Base::steps_,
      Base::t_;
  using typename Base::Element;
  static constexpr int kPair = Dot::kPair;

 public:
  using Base::Base;
  void run() {
    this->run_chunks([this](int64_t base) { process_chunk(base); });
  }

 private:
  // A bit for each of the panels [begin, end) in which the mask leaves some key visible to one of
  // the rows.
  uint64_t visible_panels(int64_t r, int64_t count, int64_t base, int64_t begin,
                          int64_t end) const {
    uint64_t visible = 0;
    int64_t last_query = -1;
    for (int64_t i = r; i < r + count; ++i) {
      const int64_t query = this->query_of(i), low = this->low(i), high = this->high(i);
      if (t_.mask_head_bytes == 0 && query == last_query) continue;  // the same row of the mask
      last_query = query;
      const MaskRow mask = mask_row(t_, query, this->head_of(i));
      for (int64_t p = begin; p < end; ++p) {
        if ((visible >> p & 1) != 0) continue;
        const int64_t first = base + p * kPanel;
        if (any_visible(mask, first, first + kPanel, low, high)) visible |= uint64_t{1} << p;
      }
    }
    return visible;
  }

  void process_chunk(int64_t base) {
    const int64_t passes = (rows_ + kSubRows - 1) / kSubRows * (kSubRows / kRows);
    ChunkPrefetcher prefetcher(t_, larger(low_, base + chunk_), smaller(high_, base + 2 * chunk_),
                               passes * (chunk_ / kPanel + columns_ / kPanel));
    uint64_t keys_packed = 0, values_packed = 0;  // a bit a panel
    NonFiniteKeys non_finite;
    for (int64_t r = 0; r < rows_; r += kSubRows) {
      const int64_t count = smaller(kSubRows, rows_ - r);
      int64_t begin = larger(this->low(r) - base, 0) / kPanel;
      int64_t end = (smaller(this->high(r + count - 1) - base, chunk_) + kPanel - 1) / kPanel;
      // Panels that are masked for all of these rows are skipped.
      uint64_t visible = ~uint64_t{0};
      if (t_.mask != nullptr) {
        visible = visible_panels(r, count, base, begin, end);
        while (begin < end && (visible >> begin & 1) == 0) ++begin;
        while (begin < end && (visible >> (end - 1) & 1) == 0) --end;
      }
      if (begin >= end) continue;

      for (int64_t p = begin; p < end; ++p) {
        if ((visible >> p & 1) == 0) continue;
        uint32_t* panel = s_.keys + p * kPanel * steps_;
        if ((keys_packed >> p & 1) == 0) {
          pack_keys<Dot>(t_.k, 0, t_.head_dim, base + p * kPanel, low_, high_, panel,
                         s_.key_scales + p * kPanel, s_.dequantised,
                         round_up(steps_, kLanes) + kLanes);
          keys_packed |= uint64_t{1} << p;
        }
        gemm<Dot>(count, s_.q + r * steps_, steps_, panel, steps_, kVectors,
                  {s_.scores + p * kPanel, chunk_, nullptr, nullptr}, &prefetcher);
      }

      float maxima[kPaddedSubRows], sums[kPaddedSubRows], o_scale[kPaddedSubRows],
          pv_scale[kPaddedSubRows];
      for (int64_t i = 0; i < kPaddedSubRows; ++i) maxima[i] = kMinusInfinity, sums[i] = 0;
      const float* key_scales = has_row_scales(t_.k) ? s_.key_scales : nullptr;
      const float* value_scales = has_row_scales(t_.v) ? s_.value_scales : nullptr;
      for (int64_t p = begin; p < end; ++p) {
        if ((values_packed >> p & 1) != 0) continue;
        values_packed |= uint64_t{1} << p;
        const int64_t first = base + p * kPanel;
        const bool masked = t_.mask != nullptr || first < this->low(rows_ - 1) ||
                            smaller(first + kPanel, high_) > this->high(0);
        pack_values<Dot>(t_.v, 0, t_.value_dim, columns_, first, kPanel, low_, high_,
                         s_.values + p * kPanel / kPair * kPanel, chunk_ / kPair * kPanel,
                         s_.value_scales + p * kPanel, s_.dequantised,
                         masked ? &non_finite : nullptr, base);
      }
      auto* probs = reinterpret_cast<Element*>(s_.probs);
      for (int64_t i = 0; i < count; ++i) {
        const RowStats row = this->softmax(r + i, base, s_.scores + i * chunk_, probs + i * chunk_,
                                           begin * kPanel, end * kPanel, key_scales, value_scales);
        maxima[i] = row.maximum, sums[i] = row.sum;
      }
      const bool split = t_.partial != nullptr;
      if (split) {
        for (int64_t i = 0; i < count; ++i)
          this->maxima_[r + i] = maxima[i], this->sums_[r + i] = sums[i];
      } else {
        this->update_stats(r, kSubRows, maxima, sums, o_scale, pv_scale);
      }
      for (int64_t c = 0; c < columns_; c += kPanel) {
        const int64_t remaining = t_.value_dim - c;
        const uint32_t* panel = s_.values + c * (chunk_ / kPair) + begin * kPanel / kPair * kPanel;
        gemm<Dot>(count, probs + begin * kPanel, chunk_ / kPair, panel,
                  (end - begin) * kPanel / kPair,
                  static_cast<int>((smaller(remaining, kPanel) + kLanes - 1) / kLanes),
                  {this->o_ + r * columns_ + c, columns_, split ? nullptr : o_scale, pv_scale},
                  &prefetcher);
      }
      for (int64_t i = 0; i < non_finite.count; ++i) {
        const int64_t key = non_finite.key[i];
        if (key < begin * kPanel || key >= end * kPanel) continue;
        this->add_non_finite(0, base + key, s_.scores + key, probs + key, count,
                             this->o_ + r * columns_, split ? nullptr : pv_scale);
      }
    }
  }
};

int64_t scratch_bytes(int64_t head_dim, int64_t value_dim, int64_t rows, int64_t kv_heads,
                      bool is_decode) {
  return Scratch(nullptr, head_dim, value_dim, rows, kv_heads, is_decode).offset;
}

int64_t partial_floats(int64_t value_dim, int64_t rows) {
  return rows * round_up(value_dim, kPanel) + 2 * (rows + kPaddedSubRows);
}

template <class Dot>
void run_with(const AttentionTile& tile) {
  if (tile.is_decode) {
    DecodeTile<Dot>(tile).run();
  } else {
    PrefillTile<Dot>(tile).run();
  }
}

void run_tile(const AttentionTile& tile) {
#if defined(__AVX512BF16__)
  switch (tile.dot) {
    case AttentionDot::bf16_pairs:
      return run_with<Bf16Dot>(tile);
    case AttentionDot::split_pairs:  // else in FP32, with the bits of prefill
      if (dequantises_in_registers<SplitBf16Dot>(tile)) return DecodeTile<SplitBf16Dot>(tile).run();
      break;
    case AttentionDot::f32:
      break;
  }
#endif
  run_with<F32Dot>(tile);
}

void dequantise_mxfp8(const uint8_t* packed, const uint8_t* scales, int64_t count, uint16_t* out) {
  dequantise_row<Format::mxfp8>(packed, scales, count, count, out);
}

void combine_tile(const AttentionTile& tile) { TileBase<F32Dot>(tile).combine(); }

}  // namespace

extern const AttentionCpu attention_cpu;
const AttentionCpu attention_cpu = {kLanes,   scratch_bytes, partial_floats,
                                    run_tile, combine_tile,  dequantise_mxfp8};

}  // namespace halftone::HALFTONE_LEVEL

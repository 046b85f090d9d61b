// Attention of one tile: chunk by chunk S = Q K^T, softmax, O = O * keep + P V * add.
#include "ops/attention/cpu/kernel.h"

#include "ops/attention/cpu/decode.h"
#include "ops/attention/cpu/pack.h"

namespace halftone::HALFTONE_LEVEL {
namespace {

// Tiles of many rows and one KV head: K and V of a chunk are packed once for all rows.
template <class Products>
class ManyRowsTile : public TileBase<Products> {
  using Base = TileBase<Products>;
  using Base::chunk_, Base::columns_, Base::high_, Base::low_, Base::rows_, Base::s_, Base::steps_,
      Base::t_;
  using typename Base::Element;
  static constexpr int kPair = Products::kPair;

 public:
  using Base::Base;
  void run() {
    this->run_chunks([this](int64_t base) { process_chunk(base); });
  }

 private:
  // A bit for each of the panels [begin, end) that the mask shows to one of the rows at least.
  uint64_t panels_shown(int64_t r, int64_t count, int64_t base, int64_t begin, int64_t end) const {
    uint64_t shown = 0;
    int64_t last_query = -1;
    for (int64_t i = r; i < r + count; ++i) {
      const int64_t query = this->query_of(i), low = this->low(i), high = this->high(i);
      if (t_.mask_head_bytes == 0 && query == last_query) continue;  // the same row of the mask
      last_query = query;
      const MaskRow mask = mask_row(t_, query, this->head_of(i));
      for (int64_t p = begin; p < end; ++p) {
        if ((shown >> p & 1) != 0) continue;
        const int64_t first = base + p * kPanel;
        if (mask_shows(mask, first, first + kPanel, low, high)) shown |= uint64_t{1} << p;
      }
    }
    return shown;
  }

  void process_chunk(int64_t base) {
    const int64_t passes = (rows_ + kSubRows - 1) / kSubRows * (kSubRows / kRows);
    ChunkAhead ahead(t_, larger(low_, base + chunk_), smaller(high_, base + 2 * chunk_),
                     passes * (chunk_ / kPanel + columns_ / kPanel));
    uint64_t keys_packed = 0, values_packed = 0;  // a bit a panel
    SpecialKeys special;
    for (int64_t r = 0; r < rows_; r += kSubRows) {
      const int64_t count = smaller(kSubRows, rows_ - r);
      int64_t begin = larger(this->low(r) - base, 0) / kPanel;
      int64_t end = (smaller(this->high(r + count - 1) - base, chunk_) + kPanel - 1) / kPanel;
      // Panels that the mask hides from all of these rows are not multiplied.
      uint64_t shown = ~uint64_t{0};
      if (t_.mask != nullptr) {
        shown = panels_shown(r, count, base, begin, end);
        while (begin < end && (shown >> begin & 1) == 0) ++begin;
        while (begin < end && (shown >> (end - 1) & 1) == 0) --end;
      }
      if (begin >= end) continue;

      for (int64_t p = begin; p < end; ++p) {
        if ((shown >> p & 1) == 0) continue;
        uint32_t* panel = s_.keys + p * kPanel * steps_;
        if ((keys_packed >> p & 1) == 0) {
          pack_keys<Products>(t_.k, 0, t_.head_dim, base + p * kPanel, low_, high_, panel,
                              s_.key_scales + p * kPanel, s_.expanded,
                              round_up(steps_, kLanes) + kLanes);
          keys_packed |= uint64_t{1} << p;
        }
        multiply<Products>(count, s_.q + r * steps_, steps_, panel, steps_, kVectors,
                           {s_.scores + p * kPanel, chunk_, nullptr, nullptr}, &ahead);
      }

      float maxima[kStatistics], sums[kStatistics], keep[kStatistics], add[kStatistics];
      for (int64_t i = 0; i < kStatistics; ++i) maxima[i] = kMinusInfinity, sums[i] = 0;
      const float* key_scales = has_row_scales(t_.k) ? s_.key_scales : nullptr;
      const float* value_scales = has_row_scales(t_.v) ? s_.value_scales : nullptr;
      for (int64_t p = begin; p < end; ++p) {
        if ((values_packed >> p & 1) != 0) continue;
        values_packed |= uint64_t{1} << p;
        const int64_t first = base + p * kPanel;
        const bool hides = t_.mask != nullptr || first < this->low(rows_ - 1) ||
                           smaller(first + kPanel, high_) > this->high(0);
        pack_values<Products>(t_.v, 0, t_.value_dim, columns_, first, kPanel, low_, high_,
                              s_.values + p * kPanel / kPair * kPanel, chunk_ / kPair * kPanel,
                              s_.value_scales + p * kPanel, s_.expanded, hides ? &special : nullptr,
                              base);
      }
      auto* weights = reinterpret_cast<Element*>(s_.weights);
      for (int64_t i = 0; i < count; ++i) {
        const RowStatistics row =
            this->softmax(r + i, base, s_.scores + i * chunk_, weights + i * chunk_, begin * kPanel,
                          end * kPanel, key_scales, value_scales);
        maxima[i] = row.maximum, sums[i] = row.sum;
      }
      const bool split = t_.partial != nullptr;
      if (split) {
        for (int64_t i = 0; i < count; ++i)
          this->maxima_[r + i] = maxima[i], this->sums_[r + i] = sums[i];
      } else {
        this->fold_statistics(r, kSubRows, maxima, sums, keep, add);
      }
      for (int64_t c = 0; c < columns_; c += kPanel) {
        const int64_t left = t_.value_dim - c;
        const uint32_t* panel = s_.values + c * (chunk_ / kPair) + begin * kPanel / kPair * kPanel;
        multiply<Products>(
            count, weights + begin * kPanel, chunk_ / kPair, panel, (end - begin) * kPanel / kPair,
            static_cast<int>((smaller(left, kPanel) + kLanes - 1) / kLanes),
            {this->o_ + r * columns_ + c, columns_, split ? nullptr : keep, add}, &ahead);
      }
      for (int64_t i = 0; i < special.count; ++i) {
        const int64_t key = special.key[i];
        if (key < begin * kPanel || key >= end * kPanel) continue;
        this->add_special(0, base + key, s_.scores + key, weights + key, count,
                          this->o_ + r * columns_, split ? nullptr : add);
      }
    }
  }
};

int64_t scratch_bytes(int64_t head_dim, int64_t value_dim, int64_t rows, int64_t kv_heads,
                      bool few) {
  return Scratch(nullptr, head_dim, value_dim, rows, kv_heads, few).offset;
}

int64_t partial_floats(int64_t value_dim, int64_t rows) {
  return rows * round_up(value_dim, kPanel) + 2 * (rows + kStatistics);
}

template <class Products>
void run_with(const AttentionTile& tile) {
  if (tile.few) {
    FewRowsTile<Products>(tile).run();
  } else {
    ManyRowsTile<Products>(tile).run();
  }
}

void run_tile(const AttentionTile& tile) {
#if defined(__AVX512BF16__)
  switch (tile.products) {
    case AttentionProducts::bf16_pairs:
      return run_with<Bf16Products>(tile);
    case AttentionProducts::split_pairs:  // else in f32, with the bits of many rows
      if (decodes_in_place<SplitProducts>(tile)) return FewRowsTile<SplitProducts>(tile).run();
      break;
    case AttentionProducts::f32:
      break;
  }
#endif
  run_with<F32Products>(tile);
}

void expand_mxfp8(const uint8_t* codes, const uint8_t* scales, int64_t count, uint16_t* out) {
  expand_row<Format::mxfp8>(codes, scales, count, count, out);
}

void merge_tile(const AttentionTile& tile) { TileBase<F32Products>(tile).merge(); }

}  // namespace

extern const AttentionCpu attention_cpu;
const AttentionCpu attention_cpu = {kLanes,   scratch_bytes, partial_floats,
                                    run_tile, merge_tile,    expand_mxfp8};

}  // namespace halftone::HALFTONE_LEVEL

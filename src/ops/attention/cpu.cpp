// Attention of one tile: chunk by chunk S = Q K^T, softmax, O = O * keep + P V * add.
#include "ops/attention/cpu.h"

#include "ops/attention/cpu_few.h"

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
  void process_chunk(int64_t base) {
    int64_t keys_ready = -1, values_ready = -1;  // panels packed so far, from the first one needed
    for (int64_t r = 0; r < rows_; r += kSubRows) {
      const int64_t count = smaller(kSubRows, rows_ - r);
      const int64_t begin = larger(this->low(r) - base, 0) / kPanel;
      const int64_t end = (smaller(this->high(r + count - 1) - base, chunk_) + kPanel - 1) / kPanel;
      if (begin >= end) continue;
      if (keys_ready < 0) keys_ready = values_ready = begin;

      for (int64_t p = begin; p < end; ++p) {
        uint32_t* panel = s_.keys + p * kPanel * steps_;
        if (p >= keys_ready) {
          pack_keys<Products>(t_.k, 0, t_.head_dim, base + p * kPanel, low_, high_, panel,
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
      for (; values_ready < end; ++values_ready) {
        pack_values<Products>(t_.v, 0, t_.value_dim, columns_, base + values_ready * kPanel, kPanel,
                              low_, high_, s_.values + values_ready * kPanel / kPair * kPanel,
                              chunk_ / kPair * kPanel, s_.value_scales + values_ready * kPanel,
                              s_.expanded);
      }
      auto* weights = reinterpret_cast<Element*>(s_.weights);
      const auto softmax = softmax_row_of<Element>(t_.rounding);
      for (int64_t i = 0; i < count; ++i) {
        const RowStatistics row =
            softmax(s_.scores + i * chunk_, weights + i * chunk_, begin * kPanel, end * kPanel,
                    this->low(r + i) - base, this->high(r + i) - base, s_.q_scales[r + i],
                    key_scales, value_scales);
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
        multiply<Products>(count, weights + begin * kPanel, chunk_ / kPair, panel,
                           (end - begin) * kPanel / kPair,
                           static_cast<int>((smaller(left, kPanel) + kLanes - 1) / kLanes),
                           {this->o_ + r * columns_ + c, columns_, split ? nullptr : keep, add});
      }
    }
  }
};

int64_t scratch_bytes(int64_t head_dim, int64_t value_dim, int64_t rows, int64_t kv_heads) {
  return Scratch(nullptr, head_dim, value_dim, rows, kv_heads).offset;
}

int64_t partial_floats(int64_t value_dim, int64_t rows) {
  return rows * round_up(value_dim, kPanel) + 2 * (rows + kStatistics);
}

template <class Products>
void run_with(const AttentionTile& tile) {
  if (tile.queries * tile.group <= kAttentionFewRows) {
    FewRowsTile<Products>(tile).run();
  } else {
    ManyRowsTile<Products>(tile).run();
  }
}

void run_tile(const AttentionTile& tile) {
#if defined(__AVX512BF16__)
  if (tile.bf16_products) return run_with<Bf16Products>(tile);
#endif
  run_with<F32Products>(tile);
}

void merge_tile(const AttentionTile& tile) { TileBase<F32Products>(tile).merge(); }

}  // namespace

extern const AttentionCpu attention_cpu;
const AttentionCpu attention_cpu = {kLanes, scratch_bytes, partial_floats, run_tile, merge_tile};

}  // namespace halftone::HALFTONE_LEVEL

// O += P V of a few rows (decode): V is multiplied as it is read, each cache row once for all heads
// of the group, in the same order of sums as with packed V.
#pragma once
#include "ops/attention/cpu/pack.h"

namespace halftone::HALFTONE_LEVEL {

inline constexpr int64_t kStripKeys = 64;  // multiplied at a time: 16 KB of bf16 at head_dim 128

// kVectors vectors of B for one step from column x of its row, or of its two rows.
HALFTONE_INLINE void load_step(const float* const* rows, int64_t x, f32v (&b)[kVectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) b[v] = load_raw<f32v>(rows[0] + x + v * kLanes);
}
#if defined(__AVX512BF16__)
HALFTONE_INLINE void load_step(const uint16_t* const* rows, int64_t x, f32v (&b)[kVectors]) {
  interleave(rows[0] + x, rows[1] + x, b);
}
#endif

#if defined(__AVX512F__)
// A row of V in f16, multiplied in f32.
struct F16Row {
  const uint8_t* data;
};
HALFTONE_INLINE void load_step(const F16Row* rows, int64_t x, f32v (&b)[kVectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) b[v] = load<Format::f16>(rows[0].data, x + v * kLanes);
}
#endif

// MR rows of C, kPanel columns from x: C += A B over `steps` steps.
template <class Products, int MR, class Row>
void accumulate_block(const uint32_t* a, int64_t a_stride, const Row* rows, int64_t steps,
                      int64_t x, float* c, int64_t c_stride, Prefetcher* ahead, int64_t lines) {
  f32v acc[MR][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = load_raw<f32v>(c + r * c_stride + x + v * kLanes);
    }
  }
  for (int64_t k = 0; k < steps; ++k) {
    f32v b[kVectors];
    load_step(rows + k * Products::kPair, x, b);
    ahead->step(lines);
#pragma GCC unroll 4
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        acc[r][v] = Products::multiply_add(acc[r][v], a[r * a_stride + k], b[v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      store_raw(c + r * c_stride + x + v * kLanes, acc[r][v]);
    }
  }
}

template <class Products, class Row>
HALFTONE_INLINE void accumulate(int64_t rows, const uint32_t* a, int64_t a_stride, const Row* row,
                                int64_t steps, int64_t columns, float* c, Prefetcher* ahead,
                                int64_t lines) {
  for (int64_t x = 0; x < columns; x += kPanel) {
    int64_t r = 0;
    const auto block = [&](auto mr) {
      accumulate_block<Products, decltype(mr)::value>(a + r * a_stride, a_stride, row, steps, x,
                                                      c + r * columns, columns, ahead, lines);
      r += decltype(mr)::value;
    };
    while (rows - r >= 4) block(Count<4>{});
    if (rows - r >= 2) block(Count<2>{});
    if (rows - r >= 1) block(Count<1>{});
  }
}

#if defined(__AVX512F__)
HALFTONE_INLINE void set_row(F16Row* row, const uint8_t* data, const uint8_t*) { *row = {data}; }

// As multiply_values, for V of whole panels whose codes the product reads itself.
template <class Products, class Row>
void multiply_codes(const AttentionRows& v, int64_t head, int64_t columns, int64_t first,
                    int64_t count, int64_t low, int64_t high,
                    const typename Products::Element* weights, int64_t stride, int64_t rows,
                    float* c, const typename Products::Element* zeros, Prefetcher* ahead,
                    int64_t lines) {
  RowCursor cursor(v, first < low ? low : first, head);
  const auto* zero = reinterpret_cast<const uint8_t*>(zeros);
  for (int64_t done = 0; done < count; done += kStripKeys) {
    const int64_t keys = count - done < kStripKeys ? count - done : kStripKeys;
    Row row[kStripKeys];
    RowPointer run;
    const bool is_run =
        first + done >= low && first + done + keys <= high && cursor.next_run(keys, &run);
    for (int64_t j = 0; is_run && j < keys; ++j) {
      set_row(&row[j], run.data + j * v.row_bytes,
              run.scales == nullptr ? nullptr : run.scales + j * v.scale_row_bytes);
    }
    for (int64_t j = 0; !is_run && j < keys; ++j) {
      const int64_t key = first + done + j;
      set_row(&row[j], zero, zero);
      if (key < low || key >= high) continue;
      const RowPointer source = cursor.next();
      set_row(&row[j], source.data, source.scales);
    }
    accumulate<Products>(rows, reinterpret_cast<const uint32_t*>(weights + done),
                         stride / Products::kPair, row, keys / Products::kPair, columns, c, ahead,
                         lines);
  }
}
#endif

// `weights`: row r, keys [first, first + count) at weights + r * stride elements; count is a
// multiple of kStripKeys or of kPanel, the smaller. C[count_rows, columns] += weights V. `zeros` is
// a row of zeros, `strip` room for kStripKeys expanded rows. `ahead` is stepped by `lines` at each
// step of a product.
template <class Products>
void multiply_values(const AttentionRows& v, int64_t head, int64_t value_dim, int64_t columns,
                     int64_t first, int64_t count, int64_t low, int64_t high,
                     const typename Products::Element* weights, int64_t stride, int64_t rows,
                     float* c, typename Products::Element* strip,
                     const typename Products::Element* zeros, Prefetcher* ahead, int64_t lines) {
  using Element = typename Products::Element;
  constexpr int kPair = Products::kPair;
#if defined(__AVX512F__)
  const auto codes = [&](auto multiply) {
    multiply(v, head, columns, first, count, low, high, weights, stride, rows, c, zeros, ahead,
             lines);
  };
  if constexpr (kPair == 1) {
    if (v.format == Format::f16 && value_dim == columns) {
      return codes(multiply_codes<Products, F16Row>);
    }
  }
#endif
  const auto expand = expand_rows_of<Element>(v.format);
  const bool in_place = reads_in_place<Products>(v, value_dim, kPanel);
  RowCursor cursor(v, first < low ? low : first, head);
  for (int64_t done = 0; done < count; done += kStripKeys) {
    const int64_t keys = count - done < kStripKeys ? count - done : kStripKeys;
    const Element* row[kStripKeys];
    RowToExpand<Element> to_expand[kStripKeys];
    int64_t expanded = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t key = first + done + j;
      row[j] = zeros;
      if (key < low || key >= high) continue;
      const RowPointer source = cursor.next();
      if (in_place) {
        row[j] = reinterpret_cast<const Element*>(source.data);
      } else {
        row[j] = strip + j * columns;
        to_expand[expanded++] = {source.data, source.scales, strip + j * columns};
      }
    }
    if (expanded > 0) expand(to_expand, expanded, value_dim, columns);
    const auto* a = reinterpret_cast<const uint32_t*>(weights + done);
    const int64_t a_stride = stride / kPair;
    accumulate<Products>(rows, a, a_stride, row, keys / kPair, columns, c, ahead, lines);
  }
}

}  // namespace halftone::HALFTONE_LEVEL

// O += P V of decode on the CPU: V is multiplied as it is read, each cache row once for all heads
// of the group, in the same order of sums as with packed V.
#pragma once
#include "ops/attention/cpu/pack.h"

namespace halftone::HALFTONE_LEVEL {

inline constexpr int64_t kStripKeys = 64;  // keys at a time: 16 KB of BF16 at head size 128

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
// A row of V in FP16, multiplied in FP32.
struct F16Row {
  const uint8_t* data;
};
HALFTONE_INLINE void load_step(const F16Row* rows, int64_t x, f32v (&b)[kVectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) b[v] = load<Format::f16>(rows[0].data, x + v * kLanes);
}
#endif

// MR rows of C, kPanel columns from x: C += A B over `steps` steps.
template <class Dot, int MR, class Row>
void accumulate_block(const uint32_t* a, int64_t a_stride, const Row* rows, int64_t steps,
                      int64_t x, float* c, int64_t c_stride, Prefetcher* prefetcher,
                      int64_t lines) {
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
    load_step(rows + k * Dot::kPair, x, b);
    prefetcher->step(lines);
#pragma GCC unroll 4
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        acc[r][v] = Dot::multiply_add(acc[r][v], a[r * a_stride + k], b[v]);
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

template <class Dot, class Row>
HALFTONE_INLINE void accumulate(int64_t rows, const uint32_t* a, int64_t a_stride, const Row* row,
                                int64_t steps, int64_t columns, float* c, Prefetcher* prefetcher,
                                int64_t lines) {
  for (int64_t x = 0; x < columns; x += kPanel) {
    int64_t r = 0;
    const auto block = [&](auto mr) {
      accumulate_block<Dot, decltype(mr)::value>(a + r * a_stride, a_stride, row, steps, x,
                                                 c + r * columns, columns, prefetcher, lines);
      r += decltype(mr)::value;
    };
    while (rows - r >= 4) block(Count<4>{});
    if (rows - r >= 2) block(Count<2>{});
    if (rows - r >= 1) block(Count<1>{});
  }
}

#if defined(__AVX512F__)
HALFTONE_INLINE void set_row(F16Row* row, const uint8_t* data, const uint8_t*) { *row = {data}; }

// As gemm_pv, for V of whole panels that the dot product reads as stored.
template <class Dot, class Row>
void gemm_pv_direct(const AttentionRows& v, int64_t head, int64_t columns, int64_t first,
                    int64_t count, int64_t low, int64_t high, const typename Dot::Element* probs,
                    int64_t stride, int64_t rows, float* c, const typename Dot::Element* zeros,
                    Prefetcher* prefetcher, int64_t lines) {
  RowCursor cursor(v, first < low ? low : first, head);
  const auto* zero = reinterpret_cast<const uint8_t*>(zeros);
  for (int64_t done = 0; done < count; done += kStripKeys) {
    const int64_t keys = count - done < kStripKeys ? count - done : kStripKeys;
    Row row[kStripKeys];
    RowPointer start;
    const bool contiguous =
        first + done >= low && first + done + keys <= high && cursor.next_contiguous(keys, &start);
    for (int64_t j = 0; contiguous && j < keys; ++j) {
      set_row(&row[j], start.data + j * v.row_bytes,
              start.scales == nullptr ? nullptr : start.scales + j * v.scale_row_bytes);
    }
    for (int64_t j = 0; !contiguous && j < keys; ++j) {
      const int64_t key = first + done + j;
      set_row(&row[j], zero, zero);
      if (key < low || key >= high) continue;
      const RowPointer source = cursor.next();
      set_row(&row[j], source.data, source.scales);
    }
    accumulate<Dot>(rows, reinterpret_cast<const uint32_t*>(probs + done), stride / Dot::kPair, row,
                    keys / Dot::kPair, columns, c, prefetcher, lines);
  }
}
#endif

// `probs`: P of row r, keys [first, first + count), at probs + r * stride elements; count is a
// multiple of kStripKeys or of kPanel, the smaller. C[count_rows, columns] += P V. `zeros` is a row
// of zeros, `strip` room for kStripKeys dequantised rows. `prefetcher` is stepped by `lines` at
// each step of the GEMM.
template <class Dot>
void gemm_pv(const AttentionRows& v, int64_t head, int64_t value_dim, int64_t columns,
             int64_t first, int64_t count, int64_t low, int64_t high,
             const typename Dot::Element* probs, int64_t stride, int64_t rows, float* c,
             typename Dot::Element* strip, const typename Dot::Element* zeros,
             Prefetcher* prefetcher, int64_t lines) {
  using Element = typename Dot::Element;
  constexpr int kPair = Dot::kPair;
#if defined(__AVX512F__)
  const auto direct = [&](auto gemm) {
    gemm(v, head, columns, first, count, low, high, probs, stride, rows, c, zeros, prefetcher,
         lines);
  };
  if constexpr (kPair == 1) {
    if (v.format == Format::f16 && value_dim == columns) {
      return direct(gemm_pv_direct<Dot, F16Row>);
    }
  }
#endif
  const auto dequantise = dequantise_rows_of<Element>(v.format);
  const bool in_place = reads_in_place<Dot>(v, value_dim, kPanel);
  RowCursor cursor(v, first < low ? low : first, head);
  for (int64_t done = 0; done < count; done += kStripKeys) {
    const int64_t keys = count - done < kStripKeys ? count - done : kStripKeys;
    const Element* row[kStripKeys];
    RowToDequantise<Element> to_dequantise[kStripKeys];
    int64_t dequantised = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t key = first + done + j;
      row[j] = zeros;
      if (key < low || key >= high) continue;
      const RowPointer source = cursor.next();
      if (in_place) {
        row[j] = reinterpret_cast<const Element*>(source.data);
      } else {
        row[j] = strip + j * columns;
        to_dequantise[dequantised++] = {source.data, source.scales, strip + j * columns};
      }
    }
    if (dequantised > 0) dequantise(to_dequantise, dequantised, value_dim, columns);
    const auto* a = reinterpret_cast<const uint32_t*>(probs + done);
    const int64_t a_stride = stride / kPair;
    accumulate<Dot>(rows, a, a_stride, row, keys / kPair, columns, c, prefetcher, lines);
  }
}

}  // namespace halftone::HALFTONE_LEVEL

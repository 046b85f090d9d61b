// K and V of a chunk in the layout of cpu_multiply.h: each cache row is read and expanded once per
// KV head and then serves every query of the tile and every head of the group.
#pragma once
#include "ops/attention/cpu_expand.h"
#include "ops/attention/cpu_multiply.h"

namespace halftone::HALFTONE_LEVEL {

// A row and its scales.
struct RowPointer {
  const uint8_t* data;
  const uint8_t* scales;
};

// Walks the rows of a head key by key; divides by the page size once a page only.
class RowCursor {
 public:
  HALFTONE_INLINE RowCursor(const AttentionRows& rows, int64_t key, int64_t head)
      : rows_(rows), head_(head), key_(key) {}
  // The row of the next key.
  HALFTONE_INLINE RowPointer next() {
    if (left_ == 0) seek();
    const RowPointer row = row_;
    row_.data += rows_.row_bytes;
    if (rows_.scales != nullptr) row_.scales += rows_.scale_row_bytes;
    --left_;
    ++key_;
    return row;
  }
  // Whether the next `count` rows are one run, of which *row is the first.
  HALFTONE_INLINE bool next_run(int64_t count, RowPointer* row) {
    if (left_ == 0) seek();
    if (left_ < count) return false;
    *row = row_;
    row_.data += count * rows_.row_bytes;
    if (rows_.scales != nullptr) row_.scales += count * rows_.scale_row_bytes;
    left_ -= count;
    key_ += count;
    return true;
  }

 private:
  HALFTONE_INLINE void seek() {
    int64_t page = 0, row = key_;
    left_ = int64_t{1} << 62;
    if (rows_.pages != nullptr) {
      page = rows_.pages[key_ / rows_.page_size];
      row = key_ % rows_.page_size;
      left_ = rows_.page_size - row;
    }
    row_.data =
        rows_.data + page * rows_.page_bytes + row * rows_.row_bytes + head_ * rows_.head_bytes;
    row_.scales = rows_.scales;
    if (rows_.scales != nullptr) {
      row_.scales += page * rows_.scale_page_bytes + row * rows_.scale_row_bytes +
                     head_ * rows_.scale_head_bytes;
    }
  }
  const AttentionRows& rows_;
  const int64_t head_;
  int64_t key_, left_ = 0;
  RowPointer row_ = {};
};

// Asks for rows of all heads ahead of their use, a few cache lines at a time between other work, so
// that the queue of outstanding lines neither overflows nor runs dry. Inlined by force: GCC takes a
// function of prefetches alone for one without effect and drops its calls.
class Prefetcher {
 public:
  HALFTONE_INLINE Prefetcher(const AttentionRows& rows, int64_t heads, int64_t row_bytes,
                             int64_t first, int64_t end)
      : cursor_(rows, first, 0),
        bytes_(rows.head_bytes == row_bytes ? heads * row_bytes : row_bytes),
        left_(end - first) {}
  HALFTONE_INLINE void step(int64_t lines) {
    for (int64_t i = 0; i < lines; ++i) {
      if (offset_ >= bytes_) {
        if (left_ <= 0) return;
        --left_;
        row_ = cursor_.next();
        offset_ = 0;
        if (row_.scales != nullptr) __builtin_prefetch(row_.scales, 0, 2);
      }
      __builtin_prefetch(row_.data + offset_, 0, 2);
      offset_ += 64;
    }
  }

 private:
  RowCursor cursor_;
  RowPointer row_ = {};
  const int64_t bytes_;
  int64_t left_, offset_ = int64_t{1} << 62;
};

HALFTONE_INLINE bool has_row_scales(const AttentionRows& rows) {
  return rows.scales != nullptr && !has_blocks(rows.format);
}

#if !defined(__AVX512F__)
template <int kStep, bool kHigh, int... kLane>
HALFTONE_INLINE u32v swap_blocks(u32v a, u32v b) {
  if constexpr (kHigh) {
    return __builtin_shufflevector(a, b, ((kLane & kStep) ? kLanes + kLane : kLane + kStep)...);
  } else {
    return __builtin_shufflevector(a, b, ((kLane & kStep) ? kLanes + kLane - kStep : kLane)...);
  }
}

template <int kStep>
HALFTONE_INLINE void transpose_step(u32v (&x)[kLanes]) {
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kStep) != 0) continue;
    const u32v a = x[i], b = x[i + kStep];
    if constexpr (kLanes == 8) {
      x[i] = swap_blocks<kStep, false, 0, 1, 2, 3, 4, 5, 6, 7>(a, b);
      x[i + kStep] = swap_blocks<kStep, true, 0, 1, 2, 3, 4, 5, 6, 7>(a, b);
    } else {
      x[i] = swap_blocks<kStep, false, 0, 1, 2, 3>(a, b);
      x[i + kStep] = swap_blocks<kStep, true, 0, 1, 2, 3>(a, b);
    }
  }
}

#endif

#if defined(__AVX512F__)
// 16 rows of 8 elements of 32 bits: out + i * stride receives element i of every row. Rows are
// paired as they are loaded, so that three steps of shuffles without index vectors remain. kF16:
// the elements lie in f16 and become f32.
template <bool kF16 = false>
HALFTONE_INLINE void transpose_half(const uint8_t* const* rows, int64_t offset, uint32_t* out,
                                    int64_t stride) {
  const auto pair = [&](int first, int second) {
    if constexpr (kF16) {
      const auto low = load_raw<__m128i>(rows[first] + offset);
      const auto high = load_raw<__m128i>(rows[second] + offset);
      return bits_as<__m512i>(
          _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1)));
    }
    const auto low = load_raw<__m256i>(rows[first] + offset);
    const auto high = load_raw<__m256i>(rows[second] + offset);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  };
  __m512i x[2][4];  // column quads of rows r, r + 4, r + 8, r + 12
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    const __m512i a = pair(r, r + 4), b = pair(r + 8, r + 12);
    x[0][r] = _mm512_shuffle_i32x4(a, b, 0x88);
    x[1][r] = _mm512_shuffle_i32x4(a, b, 0xdd);
  }
#pragma GCC unroll 2
  for (int q = 0; q < 2; ++q) {
    const __m512i low01 = _mm512_unpacklo_epi32(x[q][0], x[q][1]);
    const __m512i low23 = _mm512_unpacklo_epi32(x[q][2], x[q][3]);
    const __m512i high01 = _mm512_unpackhi_epi32(x[q][0], x[q][1]);
    const __m512i high23 = _mm512_unpackhi_epi32(x[q][2], x[q][3]);
    uint32_t* to = out + 4 * q * stride;
    store_raw(to, _mm512_unpacklo_epi64(low01, low23));
    store_raw(to + stride, _mm512_unpackhi_epi64(low01, low23));
    store_raw(to + 2 * stride, _mm512_unpacklo_epi64(high01, high23));
    store_raw(to + 3 * stride, _mm512_unpackhi_epi64(high01, high23));
  }
}

HALFTONE_INLINE void transpose_square(const uint8_t* const* rows, int64_t offset, uint32_t* out,
                                      int64_t stride) {
  transpose_half(rows, offset, out, stride);
  transpose_half(rows, offset + 32, out + 8 * stride, stride);
}
#else
HALFTONE_INLINE void transpose_square(const uint8_t* const* rows, int64_t offset, uint32_t* out,
                                      int64_t stride) {
  u32v x[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) x[i] = load_raw<u32v>(rows[i] + offset);
  if constexpr (kLanes >= 8) transpose_step<4>(x);
  transpose_step<2>(x);
  transpose_step<1>(x);
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) store_raw(out + i * stride, x[i]);
}
#endif

#if defined(__AVX512F__)
// 16 keys in f16 to f32, converted as they are loaded. head_dim is a multiple of 16.
static inline void pack_f16(const uint8_t* const* rows, int64_t head_dim, uint32_t* out,
                            Prefetcher* ahead, int64_t lines) {
  for (int64_t d = 0; d < head_dim; d += 16) {
    if (ahead != nullptr) ahead->step(lines);
    transpose_half<true>(rows, 2 * d, out + d * kPanel, kPanel);
    transpose_half<true>(rows, 2 * d + 16, out + (d + 8) * kPanel, kPanel);
  }
}
#endif

// Rows that need no expansion are read where they lie, if whole vectors of `multiple` fill them.
template <class Products>
HALFTONE_INLINE bool reads_in_place(const AttentionRows& rows, int64_t count, int64_t multiple) {
  return rows.format == (Products::kPair == 2 ? Format::bf16 : Format::f32) &&
         count % multiple == 0;
}

#if defined(__AVX512BF16__)
// Whether the scales of `blocks` blocks, eight at most, of 16 keys only move exponents.
HALFTONE_INLINE bool shift_exponents(const ScaleCodes& scale, int64_t blocks) {
  __m128i least = scale.code[0], most = scale.code[0];
  for (int64_t i = 1; i < (blocks < 8 ? blocks : 8); ++i) {
    least = _mm_min_epu8(least, scale.code[i]);
    most = _mm_max_epu8(most, scale.code[i]);
  }
  return shifts_exponents(least, most);
}
HALFTONE_INLINE __m512i exponent_shift(__m128i scale_codes) {
  const __m512i code = _mm512_cvtepu8_epi32(scale_codes);
  const __m512i both = code | _mm512_slli_epi32(code, 16);
  return _mm512_slli_epi16(_mm512_sub_epi16(both, _mm512_set1_epi16(127)), 7);
}

// As pack_fp4 with a scale added to the exponents; false if a scale needs a product.
static inline bool pack_mxfp4(const uint8_t* const* codes, const uint8_t* const* scales,
                              int64_t head_dim, uint32_t* out, Prefetcher* ahead, int64_t lines) {
  ScaleCodes scale;
  for (int64_t d = 0; d < head_dim; d += 64) {
    if (d % 256 == 0) {
      load_scale_codes(scales, d / 32, (head_dim - d) / 32, &scale);
      if (!shift_exponents(scale, (head_dim - d) / 32)) return false;
    }
    const __m512i shifts[2] = {exponent_shift(scale.code[d / 32 % 8]),
                               exponent_shift(scale.code[d / 32 % 8 + 1])};
    alignas(64) uint32_t columns[8 * 16];
    transpose_half(codes, d / 2, columns, 16);
    if (ahead != nullptr) ahead->step(2 * lines);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      shift_columns(load_raw<__m512i>(columns + 16 * i), shifts[i / 4],
                    out + (d / 2 + 4 * i) * kPanel, kPanel);
    }
  }
  return true;
}

// 16 keys in E2M1: the codes are transposed, a quarter of the numbers, and expanded afterwards.
// head_dim is a multiple of 64.
template <Format F>
void pack_fp4(const uint8_t* const* codes, const uint8_t* const* scales, int64_t head_dim,
              uint32_t* out, Prefetcher* ahead, int64_t lines) {
  constexpr int64_t kBlock = F == Format::nvfp4 ? 16 : 32;
  if constexpr (F == Format::mxfp4) {
    if (pack_mxfp4(codes, scales, head_dim, out, ahead, lines)) return;
  }
  Fp4Scales scale;
  for (int64_t d = 0; d < head_dim; d += 64) {
    if (d % (8 * kBlock) == 0) {
      load_scales<F>(scales, d / kBlock, (head_dim - d) / kBlock, &scale);
    }
    alignas(64) uint32_t columns[8 * 16];
    transpose_half(codes, d / 2, columns, 16);
    if (ahead != nullptr) ahead->step(2 * lines);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      expand_columns(load_raw<u32v>(columns + 16 * i), scale.value[(d + 8 * i) / kBlock % 8],
                     out + (d / 2 + 4 * i) * kPanel, kPanel);
    }
  }
}

// 16 keys in E4M3 or int8, likewise; false if an integer is -128. head_dim is a multiple of 32.
template <bool kInt8>
HALFTONE_INLINE bool pack_bytes(const uint8_t* const* codes, int64_t head_dim, uint32_t* out,
                                Prefetcher* ahead, int64_t lines) {
  __m512i most = _mm512_setzero_si512();
  for (int64_t d = 0; d < head_dim; d += 32) {
    alignas(64) uint32_t columns[8 * 16];
    transpose_half(codes, d, columns, 16);
    if (ahead != nullptr) ahead->step(lines);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      __m512i step[2];
      const __m512i magnitude =
          expand_fp8_columns<kInt8>(load_raw<__m512i>(columns + 16 * i), step);
      if constexpr (kInt8) most = _mm512_max_epu8(most, magnitude);
      store_raw(out + (d / 2 + 2 * i) * kPanel, step[0]);
      store_raw(out + (d / 2 + 2 * i + 1) * kPanel, step[1]);
    }
  }
  return _mm512_movepi8_mask(most) == 0;
}
static inline void pack_fp8(const uint8_t* const* codes, const uint8_t* const*, int64_t head_dim,
                            uint32_t* out, Prefetcher* ahead, int64_t lines) {
  pack_bytes<false>(codes, head_dim, out, ahead, lines);
}

// 16 keys in MXFP8, likewise; false if a number or a scale needs the way through f32.
static inline bool pack_mxfp8(const uint8_t* const* codes, const uint8_t* const* scales,
                              int64_t head_dim, uint32_t* out, Prefetcher* ahead, int64_t lines) {
  ScaleCodes scale;
  __m512i most = _mm512_setzero_si512();
  for (int64_t d = 0; d < head_dim; d += 32) {
    if (d % 256 == 0) {
      const int64_t left = (head_dim - d) / 32;
      load_scale_codes(scales, d / 32, left, &scale);
      if (!shift_exponents(scale, left)) return false;
    }
    const __m512i shift = exponent_shift(scale.code[d / 32 % 8]);
    alignas(64) uint32_t columns[8 * 16];
    transpose_half(codes, d, columns, 16);
    if (ahead != nullptr) ahead->step(lines);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      __m512i step[2];
      most = _mm512_max_epu8(most, expand_fp8_columns(load_raw<__m512i>(columns + 16 * i), step));
      store_raw(out + (d / 2 + 2 * i) * kPanel, add_exponent(step[0], shift));
      store_raw(out + (d / 2 + 2 * i + 1) * kPanel, add_exponent(step[1], shift));
    }
  }
  // The upper byte of NaN is 0x7f, that of numbers at most 0x43; the sign is not in it.
  return _mm512_cmpeq_epi8_mask(most & _mm512_set1_epi8(0x7f), _mm512_set1_epi8(0x7f)) == 0;
}
#endif

// Keys [first, first + kPanel) with the keys in the lanes; keys outside [low, high) become 0.
// `rows` is scratch for kLanes rows of `stride` 32-bit elements (a multiple of kLanes). `ahead` is
// stepped by `lines` for every square of kLanes keys and steps.
template <class Products>
void pack_keys(const AttentionRows& k, int64_t head, int64_t head_dim, int64_t first, int64_t low,
               int64_t high, uint32_t* panel, float* key_scales, uint32_t* rows, int64_t stride,
               Prefetcher* ahead = nullptr, int64_t lines = 0) {
  using Element = typename Products::Element;
  const int64_t steps = (head_dim + Products::kPair - 1) / Products::kPair;
  const auto expand = expand_rows_of<Element>(k.format);
  const bool scaled = has_row_scales(k);
  const bool fp4 = k.format == Format::nvfp4 || k.format == Format::mxfp4;
  const bool fp8 = k.format == Format::fp8_e4m3;
  const bool codes =
      Products::kPair == 2 && ((fp4 && head_dim % 64 == 0) || (fp8 && head_dim % 32 == 0));
  const bool mxfp8 = Products::kPair == 2 && k.format == Format::mxfp8 && head_dim % 32 == 0;
#if defined(__AVX512F__)
  const bool f16 = Products::kPair == 1 && k.format == Format::f16 && head_dim % 16 == 0;
#else
  const bool f16 = false;
#endif
  const bool int8 = Products::kPair == 2 && k.format == Format::int8 && head_dim % 32 == 0;
  const bool in_place = codes || mxfp8 || int8 || f16 ||
                        reads_in_place<Products>(k, head_dim, kLanes * Products::kPair);
  RowCursor cursor(k, first < low ? low : first, head);
  for (int v = 0; v < kVectors; ++v) {
    const uint8_t* lane_row[kLanes];
    [[maybe_unused]] const uint8_t* lane_scales[kLanes];
    RowToExpand<Element> to_expand[kLanes];
    int64_t expanded = 0;
    const int64_t first_key = first + v * kLanes;
    RowPointer run;
    const bool is_run =
        in_place && first_key >= low && first_key + kLanes <= high && cursor.next_run(kLanes, &run);
    for (int j = 0; is_run && j < kLanes; ++j) {
      lane_row[j] = run.data + j * k.row_bytes;
      lane_scales[j] = run.scales == nullptr ? nullptr : run.scales + j * k.scale_row_bytes;
      if (scaled) std::memcpy(&key_scales[v * kLanes + j], lane_scales[j], 4);
    }
    for (int j = 0; !is_run && j < kLanes; ++j) {
      const int64_t key = first_key + j;
      uint32_t* row = rows + j * stride;
      lane_scales[j] = lane_row[j] = reinterpret_cast<const uint8_t*>(row);
      if (key < low || key >= high) {
        __builtin_memset(row, 0, static_cast<size_t>(stride) * 4);
        if (scaled) key_scales[v * kLanes + j] = 0;
        continue;
      }
      const RowPointer source = cursor.next();
      if (in_place) {
        lane_row[j] = source.data;
        lane_scales[j] = source.scales;
      } else {
        to_expand[expanded++] = {source.data, source.scales, reinterpret_cast<Element*>(row)};
      }
      if (scaled) std::memcpy(&key_scales[v * kLanes + j], source.scales, 4);
    }
#if defined(__AVX512BF16__)
    if (codes) {
      const auto pack = fp8                         ? pack_fp8
                        : k.format == Format::nvfp4 ? pack_fp4<Format::nvfp4>
                                                    : pack_fp4<Format::mxfp4>;
      pack(lane_row, lane_scales, head_dim, panel + v * kLanes, ahead, lines);
      continue;
    }
    if (mxfp8 || int8) {
      uint32_t* out = panel + v * kLanes;
      if (int8 ? pack_bytes<true>(lane_row, head_dim, out, ahead, lines)
               : pack_mxfp8(lane_row, lane_scales, head_dim, out, ahead, lines)) {
        continue;
      }
      for (int j = 0; j < kLanes; ++j) {
        auto* row = reinterpret_cast<Element*>(rows + j * stride);
        const auto* bytes = reinterpret_cast<const uint8_t*>(row);
        if (lane_row[j] != bytes) to_expand[expanded++] = {lane_row[j], lane_scales[j], row};
        lane_row[j] = bytes;
      }
    }
#endif
#if defined(__AVX512F__)
    if (f16) {
      pack_f16(lane_row, head_dim, panel + v * kLanes, ahead, lines);
      continue;
    }
#endif
    if (expanded > 0) expand(to_expand, expanded, head_dim, steps * Products::kPair);
    for (int64_t d = 0; d < steps; d += kLanes) {
      uint32_t* out = panel + d * kPanel + v * kLanes;
      if (ahead != nullptr) ahead->step(lines);
      if (d + kLanes <= steps) {
        transpose_square(lane_row, 4 * d, out, kPanel);
      } else {
        alignas(64) uint32_t square[kLanes * kLanes];
        transpose_square(lane_row, 4 * d, square, kLanes);
        for (int64_t i = 0; i < steps - d; ++i) {
          store_raw(out + i * kPanel, load_raw<u32v>(square + i * kLanes));
        }
      }
    }
  }
}

// Two rows of bf16 as pairs: element i of the result is (even[i], odd[i]).
HALFTONE_INLINE void interleave(const uint16_t* even, const uint16_t* odd, uint32_t* out) {
  const u32v low = __builtin_convertvector(load_raw<u16v>(even), u32v);
  const u32v high = __builtin_convertvector(load_raw<u16v>(odd), u32v);
  store_raw(out, low | (high << 16));
}

// Keys [first, first + count) of V with its columns in the lanes: panel p of kPanel columns is at
// `packed` + p * panel_stride, its row of step s at + s * kPanel, s counting from `first`. count is
// even; keys outside [low, high) become 0. `rows` is scratch for two rows of `columns` elements.
template <class Products>
void pack_values(const AttentionRows& v, int64_t head, int64_t value_dim, int64_t columns,
                 int64_t first, int64_t count, int64_t low, int64_t high, uint32_t* packed,
                 int64_t panel_stride, float* value_scales, uint32_t* rows) {
  using Element = typename Products::Element;
  const auto expand = expand_rows_of<Element>(v.format);
  const bool scaled = has_row_scales(v);
  auto* row = reinterpret_cast<Element*>(rows);
  RowCursor cursor(v, first < low ? low : first, head);
  for (int64_t i = 0; i < count; i += Products::kPair) {
    for (int j = 0; j < Products::kPair; ++j) {
      const int64_t key = first + i + j;
      if (key < low || key >= high) {
        __builtin_memset(row + j * columns, 0, static_cast<size_t>(columns) * sizeof(Element));
        if (scaled) value_scales[i + j] = 0;
        continue;
      }
      const RowPointer source = cursor.next();
      const RowToExpand<Element> to_expand{source.data, source.scales, row + j * columns};
      expand(&to_expand, 1, value_dim, columns);
      if (scaled) std::memcpy(&value_scales[i + j], source.scales, 4);
    }
    uint32_t* out = packed + i / Products::kPair * kPanel;
    for (int64_t c = 0; c < columns; c += kPanel, out += panel_stride) {
      if constexpr (Products::kPair == 1) {
        __builtin_memcpy(out, row + c, kPanel * 4);
      } else {
        for (int x = 0; x < kPanel; x += kLanes) {
          interleave(row + c + x, row + columns + c + x, out + x);
        }
      }
    }
  }
}

}  // namespace halftone::HALFTONE_LEVEL

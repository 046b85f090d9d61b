// O += P V of decode on the CPU, for ISA levels with VDPBF16PS: two rows of V at a time are
// dequantised in registers to pairs and multiplied by the P of all rows of their KV head.
#pragma once
#include <type_traits>

#include "ops/attention/cpu/decode_keys.h"
#include "ops/attention/cpu/decode_rows.h"

#if defined(__AVX512BF16__)
namespace halftone::HALFTONE_LEVEL {

// P of MR rows over a strip, for one step at a time.
template <class Dot, int MR>
struct StripP {
  const uint32_t* a;
  int64_t stride;
  HALFTONE_INLINE StripP(const uint32_t* probs, int64_t probs_stride)
      : a(probs), stride(probs_stride) {}
  template <class Pair>
  HALFTONE_INLINE void add(int r, int64_t k, const f32v (&b)[4], f32v (&acc)[4]) const {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) acc[v] = Dot::multiply_add(acc[v], a[r * stride + k], b[v]);
  }
};
// Split once for all columns.
template <int MR>
struct StripP<SplitBf16Dot, MR> {
  alignas(64) float low[MR][kDecodeStrip / 2], high[MR][kDecodeStrip / 2];
  HALFTONE_INLINE StripP(const uint32_t* probs, int64_t stride) {
    for (int r = 0; r < MR; ++r) {
      for (int64_t k = 0; k < kDecodeStrip / 2; k += kLanes) {
        const auto pairs = load_raw<f32v>(probs + r * stride + k);
        store_raw(low[r] + k, SplitBf16Dot::low(pairs));
        store_raw(high[r] + k, SplitBf16Dot::high(pairs));
      }
    }
  }
  template <class Pair>
  HALFTONE_INLINE void add(int r, int64_t k, const f32v (&b)[4], f32v (&acc)[4]) const {
    using P = SplitBf16Dot;
    const f32v even = broadcast(low[r][k]), odd = broadcast(high[r][k]);  // rows of V
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      if constexpr (std::is_same_v<Pair, ValueHalves>) {
        const f32v first = v % 2 == 0 ? P::low(b[v / 2]) : P::high(b[v / 2]);
        const f32v second = v % 2 == 0 ? P::low(b[2 + v / 2]) : P::high(b[2 + v / 2]);
        acc[v] = fma(odd, second, fma(even, first, acc[v]));
      } else {
        acc[v] = fma(odd, P::high(b[v]), fma(even, P::low(b[v]), acc[v]));
      }
    }
  }
};

// C of MR rows, 64 columns, += P V over `steps` steps; false, and C unchanged, where a value is in
// no table.
template <class Dot, class Pair, int MR>
bool add_values(const uint32_t* a, int64_t a_stride, const RowPointer* rows, int64_t steps,
                int64_t at, int64_t scale_at, float* c, int64_t c_stride,
                LinePrefetcher* prefetcher) {
  f32v acc[MR][4];
#pragma GCC unroll 4
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) acc[r][v] = load_raw<f32v>(c + r * c_stride + v * kLanes);
  }
  Pair pair;
  const StripP<Dot, MR> probs(a, a_stride);
  for (int64_t k = 0; k < steps; ++k, rows += Dot::kPair) {
    f32v b[4];
    pair.load(rows, at, scale_at, b);
    prefetcher->step<Dot::kPair * Pair::kBytes / 64>();
#pragma GCC unroll 4
    for (int r = 0; r < MR; ++r) probs.template add<Pair>(r, k, b, acc[r]);
  }
  if (!pair.all_in_tables()) return false;
#pragma GCC unroll 4
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) store_raw(c + r * c_stride + v * kLanes, acc[r][v]);
  }
  return true;
}

// O of all heads += P V of keys[0 .. count), count a multiple of kDecodeStrip; O is zero before and
// in natural column order after.
struct AddValues {
  const AttentionRows& v;
  int64_t value_dim, kv_heads, per_head;
  const uint8_t* probs;  // P: row r at + r * stride elements
  int64_t stride;
  float* o;  // [rows, value_dim]
  int64_t distance;
  uint8_t* dequantised;  // room for kDecodeStrip rows of value_dim in bf16
};
template <class Dot, Format F>
void decode_values(const AddValues& t, const RowPointer* keys, int64_t count) {
  using Values = ValuesOf<Dot, F>;
  constexpr int64_t kPanelBytes = Values::kBytes;
  constexpr int64_t kScales = has_blocks(F) ? 64 / block_of(F) : 0;
  using Element = typename Dot::Element;
  const auto* probs = reinterpret_cast<const Element*>(t.probs);
  LinePrefetcher prefetcher(t.v, t.kv_heads, t.value_dim * element_bits(F) / 8, keys + t.distance,
                            keys + t.distance + count);
  LinePrefetcher nothing(t.v, 1, 1, nullptr, nullptr);
  for (int64_t i = 0; i < count; i += kDecodeStrip) {
    const RowPointer* rows = keys + i;
    for (int64_t h = 0; h < t.kv_heads; ++h) {
      for (int64_t x = 0; x < t.value_dim; x += 64) {
        const int64_t at = h * t.v.head_bytes + x / 64 * kPanelBytes;
        const int64_t scale_at = h * t.v.scale_head_bytes + x / 64 * kScales;
        for (int64_t r = 0; r < t.per_head;) {
          const int64_t row = h * t.per_head + r, left = t.per_head - r;
          const int64_t count_now = left >= 4 ? 4 : left >= 2 ? 2 : 1;
          const auto add = [&](auto pair, const RowPointer* from, int64_t from_at, bool ask) {
            using Pair = decltype(pair);
            const auto* a = reinterpret_cast<const uint32_t*>(probs + row * t.stride + i);
            float* c = t.o + row * t.value_dim + x;
            const auto kernel = left >= 4   ? add_values<Dot, Pair, 4>
                                : left >= 2 ? add_values<Dot, Pair, 2>
                                            : add_values<Dot, Pair, 1>;
            return kernel(a, t.stride / Dot::kPair, from, kDecodeStrip / Dot::kPair, from_at,
                          scale_at, c, t.value_dim, ask ? &prefetcher : &nothing);
          };
          if (!add(Values(), rows, at, r == 0)) {
            if constexpr (Dot::kPair == 2) {
              RowPointer dequantised[kDecodeStrip];
              auto* out = reinterpret_cast<uint16_t*>(t.dequantised);
              for (int64_t j = 0; j < kDecodeStrip; ++j, out += 64) {
                dequantise_row<F>(rows[j].data + at, rows[j].scales + scale_at, 64, 64, out);
                dequantised[j] = {reinterpret_cast<const uint8_t*>(out), nullptr};
              }
              add(DequantisedPair<F>(), dequantised, 0, false);
            }
          }
          r += count_now;
        }
      }
    }
  }
  if constexpr (Values::kColumns != Columns::natural) {
    for (int64_t i = 0; i < t.kv_heads * t.per_head * t.value_dim; i += 64) {
      f32v x[4];
      for (int v = 0; v < 4; ++v) x[v] = load_raw<f32v>(t.o + i + v * kLanes);
      reorder<Values::kColumns>(x);
      for (int v = 0; v < 4; ++v) store_raw(t.o + i + v * kLanes, x[v]);
    }
  }
}

using DecodeValues = void (*)(const AddValues&, const RowPointer* keys, int64_t count);
// The kernel of a format; null where there is none.
template <class Dot>
DecodeValues decode_values_of(Format format, int64_t value_dim) {
  if (value_dim % 64 != 0) return nullptr;
  if constexpr (Dot::kPair == 1) {
    if (format == Format::f32) return decode_values<Dot, Format::f32>;
    if (format == Format::f16) return decode_values<Dot, Format::f16>;
  } else {
    if (format == Format::bf16) return decode_values<Dot, Format::bf16>;
    if (format == Format::fp8_e4m3) return decode_values<Dot, Format::fp8_e4m3>;
    if (format == Format::int8) return decode_values<Dot, Format::int8>;
    if (format == Format::mxfp8) return decode_values<Dot, Format::mxfp8>;
    if (format == Format::mxfp4) return decode_values<Dot, Format::mxfp4>;
    if (format == Format::nvfp4) return decode_values<Dot, Format::nvfp4>;
  }
  return nullptr;
}

}  // namespace halftone::HALFTONE_LEVEL
#endif

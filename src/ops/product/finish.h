// The end of a product: scale of the row of W, bias, residual, rounding. Included by level sources.
#pragma once
#include "ops/product/product.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

HALFTONE_INLINE f32v load_any(Format format, const void* p, int64_t i, int count) {
  if (count == kLanes) {
    if (format == Format::f32) return load<Format::f32>(p, i);
    return format == Format::bf16 ? load<Format::bf16>(p, i) : load<Format::f16>(p, i);
  }
  if (format == Format::f32) return load_partial<Format::f32>(p, i, count);
  return format == Format::bf16 ? load_partial<Format::bf16>(p, i, count)
                                : load_partial<Format::f16>(p, i, count);
}
HALFTONE_INLINE void store_any(Format format, void* p, int64_t i, f32v x, int count) {
  if (count == kLanes) {
    if (format == Format::f32) return store<Format::f32>(p, i, x);
    return format == Format::bf16 ? store<Format::bf16>(p, i, x) : store<Format::f16>(p, i, x);
  }
  if (format == Format::f32) return store_partial<Format::f32>(p, i, x, count);
  return format == Format::bf16 ? store_partial<Format::bf16>(p, i, x, count)
                                : store_partial<Format::f16>(p, i, x, count);
}

HALFTONE_INLINE void finish_row(const product::Finish& f) {
  for (int64_t i = 0; i < f.count; i += kLanes) {
    const int count = f.count - i < kLanes ? static_cast<int>(f.count - i) : kLanes;
    f32v y = load_any(Format::f32, f.sums, i, count);
    if (f.scale != nullptr) y = y * load_any(Format::f32, f.scale, i, count);
    if (f.bias != nullptr) y = y + load_any(f.bias_format, f.bias, i, count);
    if (f.residual != nullptr) y = y + load_any(f.out_format, f.residual, i, count);
    store_any(f.out_format, f.out, i, y, count);
  }
}

HALFTONE_INLINE void swiglu_row(const float* gate, const float* up, int64_t n, void* out,
                                Format out_format) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const int count = n - i < kLanes ? static_cast<int>(n - i) : kLanes;
    const f32v g = load_any(Format::f32, gate, i, count), u = load_any(Format::f32, up, i, count);
    store_any(out_format, out, i, g / (exp(-g) + 1.0f) * u, count);
  }
}

}  // namespace halftone::HALFTONE_LEVEL

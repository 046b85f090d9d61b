// SwiGLU, once per instruction level.
#include "ops/activation/kernels.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

HALFTONE_INLINE f32v silu(f32v x) {
  const f32v d = 1.0f + exp(-x);
#if defined(__AVX512F__)
  // The division alone would take as long as everything else; an estimate of 14 bits and a Newton
  // step are as good unless d is near the end of the range.
  const __m512 v = bits_as<__m512>(d);
  const __mmask16 far = _mm512_cmp_ps_mask(v, _mm512_set1_ps(0x1p125f), _CMP_NLE_UQ);
  if (__builtin_expect(far == 0, 1)) {
    const f32v y = bits_as<f32v>(_mm512_maskz_rcp14_ps(0xffff, v));
    return x * fma(y, fma(-d, y, broadcast(1.0f)), y);
  }
#endif
  return x / d;
}

template <Format F>
void pieces(const SwigluArgs& args, int64_t begin, int64_t end) {
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t r = piece / args.column_blocks;
    const int64_t first = piece % args.column_blocks * kSwigluBlock;
    const int64_t last = first + kSwigluBlock < args.columns ? first + kSwigluBlock : args.columns;
    const char *gate = args.gate[r], *up = args.up[r];
    char* out = args.out[r];
    int64_t i = first;
    for (; i + 2 * kLanes <= last; i += 2 * kLanes) {  // two chains hide the latency of exp
      const f32v a = silu(load<F>(gate, i)) * load<F>(up, i);
      const f32v b = silu(load<F>(gate, i + kLanes)) * load<F>(up, i + kLanes);
      store_pair<F>(out, i, a, b);
    }
    for (; i < last; i += kLanes) {
      const int count = last - i < kLanes ? static_cast<int>(last - i) : kLanes;
      const f32v g = load_partial<F>(gate, i, count), u = load_partial<F>(up, i, count);
      store_partial<F>(out, i, silu(g) * u, count);
    }
  }
}

}  // namespace

void swiglu_pieces(const SwigluArgs& args, int64_t begin, int64_t end) {
  switch (args.format) {
    case Format::f32:
      return pieces<Format::f32>(args, begin, end);
    case Format::f16:
      return pieces<Format::f16>(args, begin, end);
    default:
      return pieces<Format::bf16>(args, begin, end);
  }
}

}  // namespace halftone::HALFTONE_LEVEL

// RoPE on the CPU, compiled for every ISA level. Products and sums are rounded separately, so every
// level gives the same bits.
#include "ops/rope/kernels.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

typedef double f64v __attribute__((vector_size(kLanes * 8)));
typedef int64_t i64v __attribute__((vector_size(kLanes * 8)));

// Pairs whose angles are held at a time; 8 KiB of stack serve head_dim 1024 in one pass.
constexpr int64_t kPairs = 512;

// Cosine and sine of kLanes angles |a| < 2^32, within 2 ulp of FP32 beside the rounding of `a`.
HALFTONE_INLINE void sine_cosine(const double* angle, float* cosine, float* sine) {
  f64v a;
  std::memcpy(&a, angle, sizeof a);
  // n = round(a 2/pi) by adding 1.5 * 2^52, which leaves n in the low bits.
  constexpr double kShift = 6755399441055744.0;
  const f64v shifted = a * 0.63661977236758134308 + kShift;
  const f64v n = shifted - kShift;
  // pi/2 in parts, two of them of 22 bits: their products with n < 2^31 are exact without FMA.
  f64v r = a - n * 0x1.921fbp+0;
  r = r - n * 0x1.5110bp-22;
  r = r - n * 0x1.18469898cc517p-44;
  const f32v x = __builtin_convertvector(r, f32v);
  i64v whole;  // bits_as would return a vector wider than the level has registers
  std::memcpy(&whole, &shifted, sizeof whole);
  const i32v quadrant = __builtin_convertvector(whole & 3, i32v);
  // On |x| <= pi/4: polynomials with relative error below 2^-25 (sine) and 2^-26 (cosine).
  const f32v z = x * x;
  f32v s = (z * -1.9515295891e-4f + 8.3321608736e-3f) * z - 1.6666654611e-1f;
  s = s * z * x + x;
  f32v c = (z * 2.443315711809948e-5f - 1.388731625493765e-3f) * z + 4.166664568298827e-2f;
  c = c * z * z - z * 0.5f + 1.0f;
  const i32v odd = (quadrant & 1) != 0;
  const i32v sign_of_sine = (quadrant & 2) << 30;
  const i32v sign_of_cosine = ((quadrant + 1) & 2) << 30;
  store_raw(sine, bits_as<i32v>(select(odd, c, s)) ^ sign_of_sine);
  store_raw(cosine, bits_as<i32v>(select(odd, s, c)) ^ sign_of_cosine);
}

// Exchanges the lanes of each pair.
HALFTONE_INLINE f32v swap_pairs(f32v x) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif defined(__AVX2__)
  return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
#else
  return __builtin_shufflevector(x, x, 1, 0, 3, 2);
#endif
}

template <Format F>
HALFTONE_INLINE f32v load_some(const char* x, int64_t i, int count) {
  return count == kLanes ? load<F>(x, i) : load_partial<F>(x, i, count);
}
template <Format F>
HALFTONE_INLINE void store_some(char* x, int64_t i, f32v v, int count) {
  count == kLanes ? store<F>(x, i, v) : store_partial<F>(x, i, v, count);
}

// Pair i is (x[i], x[i + distance]); cosine and sine per pair.
template <Format F>
void rotate_halves(char* x, int64_t first, int64_t pairs, int64_t distance, const float* cosine,
                   const float* sine) {
  for (int64_t i = 0; i < pairs; i += kLanes) {
    const int count = pairs - i < kLanes ? static_cast<int>(pairs - i) : kLanes;
    const f32v c = load_raw<f32v>(cosine + i), s = load_raw<f32v>(sine + i);
    const f32v a = load_some<F>(x, first + i, count);
    const f32v b = load_some<F>(x, first + i + distance, count);
    store_some<F>(x, first + i, a * c - b * s, count);
    store_some<F>(x, first + i + distance, b * c + a * s, count);
  }
}

// Pair i is (x[2i], x[2i+1]); cosine doubled, sine doubled as (-s, s).
template <Format F>
void rotate_neighbours(char* x, int64_t first, int64_t pairs, const float* cosine,
                       const float* sine) {
  for (int64_t i = 0; i < 2 * pairs; i += kLanes) {
    const int count = 2 * pairs - i < kLanes ? static_cast<int>(2 * pairs - i) : kLanes;
    const f32v v = load_some<F>(x, 2 * first + i, count);
    const f32v turned = v * load_raw<f32v>(cosine + i) + swap_pairs(v) * load_raw<f32v>(sine + i);
    store_some<F>(x, 2 * first + i, turned, count);
  }
}

template <Format F>
void tokens(const RopeArgs& args, int64_t begin, int64_t end) {
  alignas(64) double angle[kLanes];
  alignas(64) float cosine[2 * kPairs + kLanes] = {}, sine[2 * kPairs + kLanes] = {};
  for (int64_t t = begin; t < end; ++t) {
    const int64_t where = t * args.position_stride;
    const auto position = static_cast<double>(
        args.wide_positions ? static_cast<const int64_t*>(args.positions)[where]
                            : static_cast<const int32_t*>(args.positions)[where]);
    for (int64_t first = 0; first < args.pairs; first += kPairs) {
      const int64_t pairs = args.pairs - first < kPairs ? args.pairs - first : kPairs;
      for (int64_t i = 0; i < pairs; i += kLanes) {
        for (int k = 0; k < kLanes; ++k) {
          angle[k] = i + k < pairs ? position * args.frequencies[first + i + k] : 0.0;
        }
        sine_cosine(angle, cosine + i, sine + i);
        if (args.magnitude != 1) {
          store_raw(cosine + i, load_raw<f32v>(cosine + i) * args.magnitude);
          store_raw(sine + i, load_raw<f32v>(sine + i) * args.magnitude);
        }
      }
      if (args.interleaved) {
        for (int64_t i = pairs - 1; i >= 0; --i) {
          cosine[2 * i + 1] = cosine[2 * i] = cosine[i];
          const float s = sine[i];
          sine[2 * i] = -s;
          sine[2 * i + 1] = s;
        }
      }
      for (int64_t h = 0; h < args.heads; ++h) {
        char* x = args.x + t * args.token_stride + h * args.head_stride;
        if (args.interleaved) {
          rotate_neighbours<F>(x, first, pairs, cosine, sine);
        } else {
          rotate_halves<F>(x, first, pairs, args.pairs, cosine, sine);
        }
      }
    }
  }
}

}  // namespace

void rope_tokens(const RopeArgs& args, int64_t begin, int64_t end) {
  switch (args.format) {
    case Format::f32:
      return tokens<Format::f32>(args, begin, end);
    case Format::f16:
      return tokens<Format::f16>(args, begin, end);
    default:
      return tokens<Format::bf16>(args, begin, end);
  }
}

}  // namespace halftone::HALFTONE_LEVEL

// The one product of attention: C[rows, width] = A[rows, steps] B[steps, width], for S = Q K^T and
// O = P V alike. An element of A and of B is 32 bits: an f32, or two bf16 that are consecutive in
// the summed dimension.
//
// Every element of C is one chain of sums over the steps in order, whatever the tile, so a row's
// result does not depend on its neighbours.
#pragma once
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

inline constexpr int kVectors = kLanes == 16 ? 4 : 2;  // of a panel of B
inline constexpr int kPanel = kVectors * kLanes;
// 6 x 4 accumulators, 4 vectors of B and a broadcast fill 29 of 32 registers and hide the latency
// of 6 at two products a cycle; with 16 registers 6 x 2, 2 and 1.
inline constexpr int kRows = 6;

template <int N>
struct Count {
  static constexpr int value = N;
};

struct F32Products {
  static constexpr int kPair = 1;
  typedef float Element;
  static HALFTONE_INLINE f32v multiply_add(f32v c, uint32_t a, f32v b) {
    return fma(broadcast(bits_as<float>(a)), b, c);
  }
};

#if defined(__AVX512BF16__)
// Each step adds two products with VDPBF16PS, which treats subnormals as 0.
struct Bf16Products {
  static constexpr int kPair = 2;
  typedef uint16_t Element;
  static HALFTONE_INLINE f32v multiply_add(f32v c, uint32_t a, f32v b) {
    return bits_as<f32v>(_mm512_dpbf16_ps(bits_as<__m512>(c), bits_as<__m512bh>(b),
                                          bits_as<__m512bh>(broadcast_u32(a))));
  }
};

// The same pairs where that instruction is slow (base/bf16_dots.h): a bf16 number is the upper half
// of an f32, so a pair is two vectors, its lower words shifted and its upper ones alone. What
// several rows share is split once.
struct SplitProducts {
  static constexpr int kPair = 2;
  typedef uint16_t Element;
  static HALFTONE_INLINE f32v low(f32v pairs) { return bits_as<f32v>(bits_as<u32v>(pairs) << 16); }
  static HALFTONE_INLINE f32v high(f32v pairs) {
    return bits_as<f32v>(bits_as<u32v>(pairs) & 0xffff0000u);
  }
  static HALFTONE_INLINE f32v multiply_add(f32v c, uint32_t a, f32v b) {
    const f32v pair = bits_as<f32v>(broadcast_u32(a));
    return fma(high(pair), high(b), fma(low(pair), low(b), c));
  }
};
#endif

// Result of a product: C = products, or C = C * keep[row] + products * add[row].
struct Epilogue {
  float* c;
  int64_t stride;
  const float* keep;  // null: overwrite
  const float* add;
};

template <class Products, int MR, int NV>
void multiply_block(const uint32_t* a, int64_t a_stride, const uint32_t* b, int64_t steps,
                    const Epilogue& epilogue) {
  f32v acc[MR][NV] = {};
  for (int64_t k = 0; k < steps; ++k, b += kPanel) {
#pragma GCC unroll 6
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        acc[r][v] =
            Products::multiply_add(acc[r][v], a[r * a_stride + k], load_raw<f32v>(b + v * kLanes));
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < MR; ++r) {
    float* c = epilogue.c + r * epilogue.stride;
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      f32v result = acc[r][v];
      if (epilogue.keep != nullptr) {
        result = fma(result, broadcast(epilogue.add[r]),
                     load_raw<f32v>(c + v * kLanes) * broadcast(epilogue.keep[r]));
      }
      store_raw(c + v * kLanes, result);
    }
  }
}

template <class Products, int NV, class Ahead>
void multiply_rows(int64_t rows, const uint32_t* a, int64_t a_stride, const uint32_t* b,
                   int64_t steps, Epilogue epilogue, Ahead* ahead) {
  const auto advance = [&](int done) {
    if (ahead != nullptr) ahead->step();
    rows -= done;
    a += done * a_stride;
    epilogue.c += done * epilogue.stride;
    if (epilogue.keep != nullptr) epilogue.keep += done, epilogue.add += done;
  };
  while (rows >= kRows) {
    multiply_block<Products, kRows, NV>(a, a_stride, b, steps, epilogue);
    advance(kRows);
  }
  if (rows >= 4) multiply_block<Products, 4, NV>(a, a_stride, b, steps, epilogue), advance(4);
  if (rows >= 2) multiply_block<Products, 2, NV>(a, a_stride, b, steps, epilogue), advance(2);
  if (rows >= 1) multiply_block<Products, 1, NV>(a, a_stride, b, steps, epilogue);
}

// One panel of B; the last `vectors` may be fewer than kVectors. `ahead` is stepped after every
// kRows rows.
template <class Products, class Ahead>
void multiply(int64_t rows, const void* a, int64_t a_stride, const void* b, int64_t steps,
              int vectors, const Epilogue& epilogue, Ahead* ahead) {
  const auto* a32 = static_cast<const uint32_t*>(a);
  const auto* b32 = static_cast<const uint32_t*>(b);
  if (vectors == 1) {
    multiply_rows<Products, 1>(rows, a32, a_stride, b32, steps, epilogue, ahead);
  } else if (vectors == 2) {
    multiply_rows<Products, 2>(rows, a32, a_stride, b32, steps, epilogue, ahead);
  } else {
    multiply_rows<Products, kVectors>(rows, a32, a_stride, b32, steps, epilogue, ahead);
  }
}

}  // namespace halftone::HALFTONE_LEVEL

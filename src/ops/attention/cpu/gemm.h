// The GEMM of CPU attention: C[rows, width] = A[rows, steps] B[steps, width], for S = Q K^T and O =
// P V alike, by register-blocked micro-kernels. An element of A and of B is 32 bits: an FP32, or
// two BF16 that are consecutive in K.
//
// Every element of C is one chain of sums over the steps in order, whatever the tile, so a row's
// result does not depend on its neighbours.
#pragma once
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

inline constexpr int kVectors = kLanes == 16 ? 4 : 2;  // of a panel of B
inline constexpr int kPanel = kVectors * kLanes;
// 6 x 4 accumulators, 4 vectors of B and a broadcast fill 29 of 32 registers and hide the latency
// of 6 at two multiply-adds a cycle; with 16 registers 6 x 2, 2 and 1.
inline constexpr int kRows = 6;

template <int N>
struct Count {
  static constexpr int value = N;
};

struct F32Dot {
  static constexpr int kPair = 1;
  typedef float Element;
  static HALFTONE_INLINE f32v multiply_add(f32v c, uint32_t a, f32v b) {
    return fma(broadcast(bits_as<float>(a)), b, c);
  }
};

#if defined(__AVX512BF16__)
// Each step adds two products with VDPBF16PS, which flushes subnormals to 0.
struct Bf16Dot {
  static constexpr int kPair = 2;
  typedef uint16_t Element;
  static HALFTONE_INLINE f32v multiply_add(f32v c, uint32_t a, f32v b) {
    return bits_as<f32v>(_mm512_dpbf16_ps(bits_as<__m512>(c), bits_as<__m512bh>(b),
                                          bits_as<__m512bh>(broadcast_u32(a))));
  }
};

// The same pairs where that instruction is slow (base/bf16_dots.h): a BF16 number is the upper half
// of an FP32, so a pair is two vectors, its lower words shifted and its upper ones masked. What
// several rows share is split once.
struct SplitBf16Dot {
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

// Epilogue of the GEMM: C = A B, or C = C * o_scale[row] + A B * pv_scale[row].
struct Epilogue {
  float* c;
  int64_t stride;
  const float* o_scale;  // null: overwrite
  const float* pv_scale;
};

template <class Dot, int MR, int NV>
void gemm_block(const uint32_t* a, int64_t a_stride, const uint32_t* b, int64_t steps,
                const Epilogue& epilogue) {
  f32v acc[MR][NV] = {};
  for (int64_t k = 0; k < steps; ++k, b += kPanel) {
#pragma GCC unroll 6
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        acc[r][v] =
            Dot::multiply_add(acc[r][v], a[r * a_stride + k], load_raw<f32v>(b + v * kLanes));
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < MR; ++r) {
    float* c = epilogue.c + r * epilogue.stride;
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      f32v result = acc[r][v];
      if (epilogue.o_scale != nullptr) {
        result = fma(result, broadcast(epilogue.pv_scale[r]),
                     load_raw<f32v>(c + v * kLanes) * broadcast(epilogue.o_scale[r]));
      }
      store_raw(c + v * kLanes, result);
    }
  }
}

template <class Dot, int NV, class Prefetch>
void gemm_rows(int64_t rows, const uint32_t* a, int64_t a_stride, const uint32_t* b, int64_t steps,
               Epilogue epilogue, Prefetch* prefetcher) {
  const auto advance = [&](int done) {
    if (prefetcher != nullptr) prefetcher->step();
    rows -= done;
    a += done * a_stride;
    epilogue.c += done * epilogue.stride;
    if (epilogue.o_scale != nullptr) epilogue.o_scale += done, epilogue.pv_scale += done;
  };
  while (rows >= kRows) {
    gemm_block<Dot, kRows, NV>(a, a_stride, b, steps, epilogue);
    advance(kRows);
  }
  if (rows >= 4) gemm_block<Dot, 4, NV>(a, a_stride, b, steps, epilogue), advance(4);
  if (rows >= 2) gemm_block<Dot, 2, NV>(a, a_stride, b, steps, epilogue), advance(2);
  if (rows >= 1) gemm_block<Dot, 1, NV>(a, a_stride, b, steps, epilogue);
}

// One panel of B; the last `vectors` may be fewer than kVectors. `prefetcher` is stepped after
// every kRows rows.
template <class Dot, class Prefetch>
void gemm(int64_t rows, const void* a, int64_t a_stride, const void* b, int64_t steps, int vectors,
          const Epilogue& epilogue, Prefetch* prefetcher) {
  const auto* a32 = static_cast<const uint32_t*>(a);
  const auto* b32 = static_cast<const uint32_t*>(b);
  if (vectors == 1) {
    gemm_rows<Dot, 1>(rows, a32, a_stride, b32, steps, epilogue, prefetcher);
  } else if (vectors == 2) {
    gemm_rows<Dot, 2>(rows, a32, a_stride, b32, steps, epilogue, prefetcher);
  } else {
    gemm_rows<Dot, kVectors>(rows, a32, a_stride, b32, steps, epilogue, prefetcher);
  }
}

}  // namespace halftone::HALFTONE_LEVEL

// The Walsh-Hadamard transform on the CPU, compiled for every ISA level: sums of two in an order
// that no ISA level changes, so that every level gives the same bits.
#include "ops/hadamard/kernels.h"

#include <utility>

#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

constexpr int64_t kBlock = 1024;  // the largest

// (a, b) at lanes i and i + stride become (a + b, a - b): each lane adds its partner to itself, the
// upper of the two with its sign changed.
template <int kStride, int... kLane>
HALFTONE_INLINE f32v butterflies(f32v x, std::integer_sequence<int, kLane...>) {
  constexpr u32v kUpper = {((kLane & kStride) != 0 ? 0x80000000u : 0u)...};
  return __builtin_shufflevector(x, x, (kLane ^ kStride)...) +
         bits_as<f32v>(bits_as<u32v>(x) ^ kUpper);
}
// Strides within a vector.
template <int kStride = 1>
HALFTONE_INLINE f32v within(f32v x, int64_t block) {
  if constexpr (kStride < kLanes) {
    if (kStride >= block) return x;
    return within<2 * kStride>(butterflies<kStride>(x, std::make_integer_sequence<int, kLanes>()),
                               block);
  } else {
    return x;
  }
}

// Blocks smaller than a vector share one, of which the last may be partial.
template <Format F>
void transform(const HadamardArgs& args, const char* x, char* out) {
  alignas(64) float y[kBlock];
  const int64_t step = args.block < kLanes ? kLanes : args.block;
  for (int64_t first = 0; first < args.head_dim; first += step) {
    const int64_t left = args.head_dim - first;
    const int count = left < kLanes ? static_cast<int>(left) : kLanes;
    const uint32_t* signs = args.signs + first % kBlock;
    for (int64_t i = 0; i < step; i += kLanes) {
      const f32v read =
          count == kLanes ? load<F>(x, first + i) : load_partial<F>(x, first + i, count);
      const f32v turned = bits_as<f32v>(bits_as<u32v>(read) ^ load_raw<u32v>(signs + i));
      store_raw(y + i, within(turned, args.block));
    }
    for (int64_t stride = kLanes; stride < args.block; stride *= 2) {
      for (int64_t pair = 0; pair < args.block; pair += 2 * stride) {
        for (int64_t i = pair; i < pair + stride; i += kLanes) {
          const f32v a = load_raw<f32v>(y + i), b = load_raw<f32v>(y + i + stride);
          store_raw(y + i, a + b);
          store_raw(y + i + stride, a - b);
        }
      }
    }
    for (int64_t i = 0; i < step; i += kLanes) {
      const f32v v = load_raw<f32v>(y + i) * args.scale;
      count == kLanes ? store<F>(out, first + i, v) : store_partial<F>(out, first + i, v, count);
    }
  }
}

template <Format F>
void rows(const HadamardArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) transform<F>(args, args.x[row], args.out[row]);
}

}  // namespace

void hadamard_rows(const HadamardArgs& args, int64_t begin, int64_t end) {
  switch (args.format) {
    case Format::f32:
      return rows<Format::f32>(args, begin, end);
    case Format::f16:
      return rows<Format::f16>(args, begin, end);
    default:
      return rows<Format::bf16>(args, begin, end);
  }
}

}  // namespace halftone::HALFTONE_LEVEL

// GEMM and GEMV in FP32: weights of any format are dequantised exactly to FP32, x is converted to
// FP32, and every product is an FMA (a multiplication and an addition on baseline processors).
// GCC 12 takes the undefined operand of its own AVX-512 intrinsics for a mistake.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "ops/gemm/cpu/epilogue.h"
#include "ops/gemm/cpu/gemv.h"
#include "ops/gemm/cpu/pack_avx512.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

using gemm::Kernels;

constexpr int kChunk = kFloatsPerLane * kLanes;

struct F32 {
  typedef f32v Vector;
  static constexpr int kPerLane = kFloatsPerLane;
  static constexpr int kSteps = kPerLane;
  // A strip of W takes 32 KiB, two thirds of the L1 cache of the processors this was tuned for; 8
  // KiB on the narrower ISA levels. The x rows of a tile pass beside it.
  static constexpr int kBlockChunks = 64 / kSteps;
  static constexpr int kScaledBlockChunks = kBlockChunks;  // scales are a sixteenth of a strip

  HALFTONE_INLINE static f32v multiply_add(f32v w, f32v x, f32v acc) { return fma(w, x, acc); }
  template <Code C>
  HALFTONE_INLINE static void expand(const uint8_t* p, const int32_t* zeros, int part,
                                     f32v out[4]) {
    expand_floats<C>(p, zeros, part, out);
  }
};
static_assert(F32::kBlockChunks * F32::kSteps * sizeof(f32v) <= gemm::kBlockBytes);

// As expand_floats orders the elements of W: 8 vectors from 8 elements of each lane.
#if defined(__AVX512BW__)
constexpr StepOrder<uint32_t> kOrder([](int d, int j) { return 8 * d + octet_element(j); });
HALFTONE_INLINE void order_octets(const float* values, float* to) {
  pack_steps(values, kOrder, to);
}
#else
HALFTONE_INLINE void order_octets(const float* values, float* to) {
  for (int j = 0; j < 8; ++j) {
    for (int d = 0; d < kLanes; ++d) to[j * kLanes + d] = values[8 * d + octet_element(j)];
  }
}
#endif

template <Format F>
void pack_row(const void* x, bool octets, int64_t k, unsigned char* out, int64_t stride) {
  for (int64_t k0 = 0, chunk = 0; k0 < k; k0 += kChunk, ++chunk) {
    auto* to = reinterpret_cast<float*>(out + chunk / F32::kBlockChunks * stride) +
               chunk % F32::kBlockChunks * kChunk;
    alignas(64) float in_order[kChunk];
    float* values = octets ? in_order : to;
    const int64_t count = k - k0 < kChunk ? k - k0 : kChunk;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store_raw(values + i, load<F>(x, k0 + i));
    if (i < count) {
      store_raw(values + i, load_partial<F>(x, k0 + i, static_cast<int>(count - i)));
      i += kLanes;
    }
    for (; i < kChunk; i += kLanes) store_raw(values + i, f32v{});
    if (octets) {
      for (int part = 0; part < F32::kSteps / 8; ++part) {
        alignas(64) float lanes[8 * kLanes];
        for (int d = 0; d < kLanes; ++d) {
          std::memcpy(lanes + 8 * d, values + F32::kPerLane * d + 8 * part, 32);
        }
        order_octets(lanes, to + 8 * part * kLanes);
      }
    }
  }
}

void pack(const void* x, Format format, bool octets, int64_t k, void* out, int64_t stride) {
  auto* to = static_cast<unsigned char*>(out);
  if (format == Format::f32) return pack_row<Format::f32>(x, octets, k, to, stride);
  if (format == Format::bf16) return pack_row<Format::bf16>(x, octets, k, to, stride);
  pack_row<Format::f16>(x, octets, k, to, stride);
}

// Rows in a format without a kernel go through a buffer of FP32, block by block.
void gemv_dequantised(const Weights& w, int64_t n0, int64_t n1, const gemm::GemvArgs& args) {
  constexpr int64_t kBlock = int64_t{F32::kBlockChunks} * kChunk;
  alignas(64) float row[kBlock];
  Weights view = w;
  view.code = Code::f32;
  view.scales = nullptr;
  view.data = reinterpret_cast<const uint8_t*>(row);
  for (int64_t n = n0; n < n1; ++n) {
    for (int64_t k0 = 0; k0 < w.k; k0 += kBlock) {
      view.k = w.k - k0 < kBlock ? w.k - k0 : kBlock;
      w.dequantise(w, n, k0, view.k, row);
      for (int64_t m = 0; m < args.m; ++m) {
        float sum;
        gemm::GemvArgs one;
        one.x = static_cast<const char*>(args.x) + m * args.x_row + k0 / kBlock * args.x_block;
        one.m = 1;
        one.sums = &sum;
        gemv_rows<F32, Code::f32, false, 1>(view, 0, 1, one, 0);
        float& total = args.sums[m * args.sums_stride + n - n0];
        total = k0 == 0 ? sum : total + sum;
      }
    }
  }
}

void expand_dequantised(const Weights& w, int64_t n0, int64_t rows, int64_t chunk0, int64_t count,
                        void* strip, float* scales) {
  constexpr int64_t kBlock = int64_t{F32::kBlockChunks} * kChunk;
  alignas(64) float values[kTileColumns * kBlock];
  Weights view = w;
  view.code = Code::f32;
  view.scales = nullptr;
  view.data = reinterpret_cast<const uint8_t*>(values);
  view.row_bytes = kBlock * 4;
  const int64_t k0 = chunk0 * kChunk;
  view.k = w.k - k0 < count * kChunk ? w.k - k0 : count * kChunk;
  for (int64_t r = 0; r < rows; ++r) {
    w.dequantise(w, n0 + r, k0, view.k, values + r * kBlock);
  }
  dequantise_rows<F32, Code::f32>(view, 0, rows, 0, count, strip, scales);
}

void gemv(const Weights& w, int64_t n0, int64_t n1, const gemm::GemvArgs& args) {
  switch (w.code) {
    case Code::f32:
      return gemv_code<F32, Code::f32, false>(w, n0, n1, args);
    case Code::f16:
      return gemv_code<F32, Code::f16, false>(w, n0, n1, args);
    case Code::bf16:
      return gemv_code<F32, Code::bf16, false>(w, n0, n1, args);
    case Code::int8_rows:
      return gemv_code<F32, Code::int8_rows, false>(w, n0, n1, args);
    case Code::dequantised:
      return gemv_dequantised(w, n0, n1, args);
    default:
      return gemv_octets<F32>(w, n0, n1, args);
  }
}

void expand(const Weights& w, int64_t n0, int64_t rows, int64_t chunk0, int64_t count, void* strip,
            float* scales) {
  switch (w.code) {
    case Code::f32:
      return dequantise_rows<F32, Code::f32>(w, n0, rows, chunk0, count, strip, scales);
    case Code::f16:
      return dequantise_rows<F32, Code::f16>(w, n0, rows, chunk0, count, strip, scales);
    case Code::bf16:
      return dequantise_rows<F32, Code::bf16>(w, n0, rows, chunk0, count, strip, scales);
    case Code::int8_rows:
      return dequantise_rows<F32, Code::int8_rows>(w, n0, rows, chunk0, count, strip, scales);
    case Code::dequantised:
      return expand_dequantised(w, n0, rows, chunk0, count, strip, scales);
    default:
      return with_octet_code(w.code, [&]<Code C>() {
        dequantise_rows<F32, C>(w, n0, rows, chunk0, count, strip, scales);
      });
  }
}

}  // namespace

extern const Kernels f32_kernels;
const Kernels f32_kernels = {kLanes, kChunk,       F32::kBlockChunks, F32::kScaledBlockChunks,
                             4,      kTileColumns, Format::f32,       pack,
                             gemv,   expand,       gemm_pass<F32>,    epilogue_row};

}  // namespace halftone::HALFTONE_LEVEL

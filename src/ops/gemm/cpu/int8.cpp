// GEMM and GEMV of INT8 activations by INT8 weights, summed exactly in 32-bit integers: 64 products
// an instruction where there is VPDPBUSD, pairs of 16-bit products elsewhere. Order does not
// matter, so every ISA level gives the same bits.
//
// VPDPBUSD multiplies unsigned by signed bytes: the weights enter as w + 128, and the epilogue
// subtracts 128 sum x, known when x is packed. Sums wrap around 2^32 in between; the result fits
// for K below 2^17.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "ops/gemm/cpu/epilogue.h"
#include "ops/gemm/cpu/prefetch.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

using gemm::Kernels;
using gemm::Weights;

#if defined(__AVX512VNNI__)
constexpr bool kBytes = true;
#else
constexpr bool kBytes = false;
#endif
constexpr int kElementBytes = kBytes ? 1 : 2;
constexpr int kStep = 4 * kLanes / kElementBytes;  // elements of a vector
constexpr int kSteps = 8;
constexpr int kChunk = kSteps * kStep;
constexpr int kBlockChunks = 8;
constexpr int kTileRows = 3;
constexpr int kTileColumns = kLanes == 16 ? 8 : 4;
constexpr int64_t kVector = 4 * kLanes;  // bytes
static_assert(int64_t{kBlockChunks} * kSteps * kVector <= gemm::kBlockBytes);

HALFTONE_INLINE i32v multiply_add(i32v w, i32v x, i32v acc) {
#if defined(__AVX512VNNI__)
  return bits_as<i32v>(
      _mm512_dpbusd_epi32(bits_as<__m512i>(acc), bits_as<__m512i>(w), bits_as<__m512i>(x)));
#elif defined(__AVX512BW__)
  return acc + bits_as<i32v>(_mm512_madd_epi16(bits_as<__m512i>(w), bits_as<__m512i>(x)));
#elif defined(__AVX2__)
  return acc + bits_as<i32v>(_mm256_madd_epi16(bits_as<__m256i>(w), bits_as<__m256i>(x)));
#elif defined(__x86_64__)
  return acc + bits_as<i32v>(_mm_madd_epi16(bits_as<__m128i>(w), bits_as<__m128i>(x)));
#else
  const i32v low = ((w << 16) >> 16) * ((x << 16) >> 16), high = (w >> 16) * (x >> 16);
  return acc + low + high;
#endif
}

// kStep values as the multiplication takes them: of W (biased by 128 where bytes are multiplied),
// of x as they are.
HALFTONE_INLINE i32v widen(const uint8_t* p) {
#if defined(__AVX512VNNI__)
  return load_raw<i32v>(p);
#elif defined(__AVX512BW__)
  return bits_as<i32v>(_mm512_cvtepi8_epi16(load_raw<__m256i>(p)));
#elif defined(__AVX2__)
  return bits_as<i32v>(_mm256_cvtepi8_epi16(load_raw<__m128i>(p)));
#else
  i32v v{};
  for (int i = 0; i < kLanes; ++i) {
    const auto low = static_cast<uint16_t>(static_cast<int8_t>(p[2 * i]));
    const auto high = static_cast<uint16_t>(static_cast<int8_t>(p[2 * i + 1]));
    v[i] = static_cast<int32_t>(static_cast<uint32_t>(high) << 16 | low);
  }
  return v;
#endif
}
HALFTONE_INLINE i32v weight(const uint8_t* p) {
  const i32v v = widen(p);
  if constexpr (!kBytes) return v;
  return bits_as<i32v>(bits_as<u32v>(v) ^ 0x80808080u);
}

// The sums of the lanes of kTileColumns vectors: lanes are exchanged while columns are joined.
HALFTONE_INLINE void reduce(const i32v v[kTileColumns], int32_t sums[kTileColumns]) {
#if defined(__AVX512F__)
  __m512i four[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    __m512i two[2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const __m512i a = bits_as<__m512i>(v[4 * i + 2 * j]);
      const __m512i b = bits_as<__m512i>(v[4 * i + 2 * j + 1]);
      two[j] = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    }
    four[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(two[0], two[1]),
                               _mm512_unpackhi_epi64(two[0], two[1]));
  }
  const __m512i half = _mm512_add_epi32(_mm512_shuffle_i32x4(four[0], four[1], 0x44),
                                        _mm512_shuffle_i32x4(four[0], four[1], 0xee));
  const __m512i whole = _mm512_add_epi32(_mm512_shuffle_i32x4(half, half, 0x88),
                                         _mm512_shuffle_i32x4(half, half, 0xdd));
  store_raw(sums, _mm512_castsi512_si256(whole));
#else
  for (int n = 0; n < kTileColumns; ++n) {
    uint32_t sum = 0;
    for (int i = 0; i < kLanes; ++i) sum += static_cast<uint32_t>(v[n][i]);
    sums[n] = static_cast<int32_t>(sum);
  }
#endif
}

// The sums hold integers in place of floats.
HALFTONE_INLINE void add_sums(const i32v v[kTileColumns], float* sums, bool first) {
  int32_t add[kTileColumns];
  reduce(v, add);
  if (!first) {
    int32_t old[kTileColumns];
    std::memcpy(old, sums, sizeof old);
    for (int n = 0; n < kTileColumns; ++n) {
      add[n] = static_cast<int32_t>(static_cast<uint32_t>(add[n]) + static_cast<uint32_t>(old[n]));
    }
  }
  std::memcpy(sums, add, sizeof add);
}

template <int kRows>
HALFTONE_INLINE void gemm_tile(const unsigned char* x, int64_t row, const unsigned char* strip,
                               int64_t steps, float* sums, int64_t sums_stride, bool first) {
  i32v acc[kRows][kTileColumns] = {};
  for (int64_t j = 0; j < steps; ++j) {
    i32v xs[kRows];
#pragma GCC unroll 3
    for (int m = 0; m < kRows; ++m) xs[m] = load_raw<i32v>(x + m * row);
    x += kVector;
#pragma GCC unroll 8
    for (int n = 0; n < kTileColumns; ++n) {
      const i32v ws = load_raw<i32v>(strip + n * kVector);
#pragma GCC unroll 3
      for (int m = 0; m < kRows; ++m) acc[m][n] = multiply_add(ws, xs[m], acc[m][n]);
    }
    strip += kTileColumns * kVector;
  }
#pragma GCC unroll 3
  for (int m = 0; m < kRows; ++m) add_sums(acc[m], sums + m * sums_stride, first);
}

void gemm_pass(const gemm::GemmArgs& p) {
  const auto* xs = static_cast<const unsigned char*>(p.x);
  const auto* ws = static_cast<const unsigned char*>(p.strip);
  const int64_t row = p.x_row, steps = p.chunks * kSteps;
  float* sums = p.sums;
  int64_t m = p.m;
  for (; m >= kTileRows; m -= kTileRows) {
    prefetch_lines(*p.prefetch);
    gemm_tile<kTileRows>(xs, row, ws, steps, sums, p.sums_stride, p.first);
    xs += kTileRows * row;
    sums += kTileRows * p.sums_stride;
  }
  if (m == 0) return;
  prefetch_lines(*p.prefetch);
  if (m == 2) gemm_tile<2>(xs, row, ws, steps, sums, p.sums_stride, p.first);
  if (m == 1) gemm_tile<1>(xs, row, ws, steps, sums, p.sums_stride, p.first);
}

// The values of a last, partial chunk; 0 beyond K, where x is 0 too.
HALFTONE_INLINE const uint8_t* whole_chunk(const uint8_t* p, int64_t elements, uint8_t* copy) {
  if (elements >= kChunk) return p;
  std::memset(copy, 0, kChunk);
  std::memcpy(copy, p, static_cast<size_t>(elements));
  return copy;
}

void pack(const void* x, Format, bool, int64_t k, void* out, int64_t stride) {
  const auto* from = static_cast<const uint8_t*>(x);
  uint8_t copy[kChunk];
  for (int64_t k0 = 0, chunk = 0; k0 < k; k0 += kChunk, ++chunk) {
    const uint8_t* p = whole_chunk(from + k0, k - k0, copy);
    auto* to = static_cast<unsigned char*>(out) + chunk / kBlockChunks * stride +
               chunk % kBlockChunks * kSteps * kVector;
    for (int j = 0; j < kSteps; ++j) store_raw(to + j * kVector, widen(p + j * kStep));
  }
}

void expand(const Weights& w, int64_t n0, int64_t rows, int64_t chunk0, int64_t count, void* strip,
            float*) {
  uint8_t copy[kChunk];
  for (int64_t r = 0; r < kTileColumns; ++r) {
    auto* out = static_cast<unsigned char*>(strip) + r * kVector;
    // Rows that do not exist repeat the last one; nobody reads their sums.
    const uint8_t* row = w.data + (n0 + (r < rows ? r : rows - 1)) * w.row_bytes;
    for (int64_t c = chunk0; c < chunk0 + count; ++c) {
      const uint8_t* p = whole_chunk(row + c * kChunk, w.k - c * kChunk, copy);
      for (int j = 0; j < kSteps; ++j, out += kTileColumns * kVector) {
        store_raw(out, weight(p + j * kStep));
      }
    }
  }
}

// Four rows side by side: as many accumulators, and as many streams for the prefetcher; the next
// four are prefetched while these are computed.
void gemv(const Weights& w, int64_t n0, int64_t n1, const gemm::GemvArgs& args) {
  constexpr int kRows = 4;
  uint8_t copy[kChunk];
  const int64_t prefetch = kRows * w.row_bytes;
  for (int64_t n = n0; n < n1; n += kRows) {
    const uint8_t* rows[kRows];
    for (int r = 0; r < kRows; ++r) {
      rows[r] = w.data + (n + r < n1 ? n + r : n1 - 1) * w.row_bytes;
    }
    const auto* xs = static_cast<const unsigned char*>(args.x);  // one row: no gaps
    i32v acc[kTileColumns] = {};
    int64_t k0 = 0;
    for (; k0 + kChunk <= w.k; k0 += kChunk) {
#pragma GCC unroll 8
      for (int j = 0; j < kSteps; ++j, xs += kVector) {
        const i32v v = load_raw<i32v>(xs);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const uint8_t* p = rows[r] + k0 + j * kStep;
          __builtin_prefetch(p + prefetch, 0, 2);
          acc[r] = multiply_add(weight(p), v, acc[r]);
        }
      }
    }
    if (k0 < w.k) {
      for (int r = 0; r < kRows; ++r) {
        const uint8_t* p = whole_chunk(rows[r] + k0, w.k - k0, copy);
        for (int j = 0; j < kSteps; ++j) {
          const i32v v = load_raw<i32v>(xs + j * kVector);
          acc[r] = multiply_add(weight(p + j * kStep), v, acc[r]);
        }
      }
    }
    int32_t all[kTileColumns];
    reduce(acc, all);
    const int64_t count = n1 - n < kRows ? n1 - n : kRows;
    std::memcpy(args.sums + (n - n0), all, static_cast<size_t>(count) * 4);
  }
}

}  // namespace

extern const Kernels int8_kernels;
const Kernels int8_kernels = {
    kLanes, kChunk, kBlockChunks, kBlockChunks, kElementBytes, kTileColumns, Format::u8 /* none */,
    pack,   gemv,   expand,       gemm_pass,    epilogue_row,  true,         kBytes ? 128 : 0};

}  // namespace halftone::HALFTONE_LEVEL

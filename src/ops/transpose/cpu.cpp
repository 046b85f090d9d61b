// Transposition on the CPU: tiles of 256 bytes a side are gathered row by row, transposed in L1 and
// written row by row, so that memory is accessed by whole lines however far apart the rows lie. A
// register holds 16 bytes at every ISA level: lines, not instructions, bound a transposition.
#include <immintrin.h>
#include <algorithm>
#include <cstring>

#include "ops/transpose/kernels.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace halftone {

namespace {

typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef uint64_t u64x2 __attribute__((vector_size(16)));

inline u8x16 low(u8x16 a, u8x16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline u8x16 high(u8x16 a, u8x16 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}
inline u16x8 low(u16x8 a, u16x8 b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline u16x8 high(u16x8 a, u16x8 b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
inline u32x4 low(u32x4 a, u32x4 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline u32x4 high(u32x4 a, u32x4 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
inline u64x2 low(u64x2 a, u64x2 b) { return __builtin_shufflevector(a, b, 0, 2); }
inline u64x2 high(u64x2 a, u64x2 b) { return __builtin_shufflevector(a, b, 1, 3); }

// A square of 16 bytes a row: every round interleaves the rows of the upper half with those of the
// lower one; log2(n) rounds exchange row and column index.
template <class V, int N>
inline void turn_square(const char* from, int64_t from_row, char* to, int64_t to_row) {
  V a[N], b[N];
  for (int i = 0; i < N; ++i) std::memcpy(&a[i], from + i * from_row, 16);
  for (int width = 1; width < N; width *= 2) {
    for (int i = 0; i < N / 2; ++i) {
      b[2 * i] = low(a[i], a[i + N / 2]);
      b[2 * i + 1] = high(a[i], a[i + N / 2]);
    }
    std::copy_n(b, N, a);
  }
  for (int i = 0; i < N; ++i) std::memcpy(to + i * to_row, &a[i], 16);
}

// A row segment of the result, by streaming stores when it is whole lines.
inline void put(char* to, const char* from, int64_t bytes, bool streamed) {
#if defined(__x86_64__)
  if (streamed && bytes % 64 == 0 && reinterpret_cast<uintptr_t>(to) % 64 == 0) {
    for (int64_t i = 0; i < bytes; i += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
    return;
  }
#endif
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

// out[r][c] = x[c][r] of the tile at x, `rows` x `columns`; `after` columns of x follow.
template <class V>
void turn_tile(const PermuteArgs& args, const char* x, char* out, int64_t rows, int64_t columns,
               int64_t after) {
  constexpr int64_t kElement = sizeof(V{}[0]), kSide = 16 / kElement;
  constexpr int64_t kTile = permute_tile(kElement), kPitch = kTile * kElement;
  alignas(64) char gathered[kTile * kPitch], transposed[kSide * kPitch];
  const int64_t bytes = rows * kElement;
  for (int64_t c = 0; c < columns; ++c) {
    std::memcpy(gathered + c * kPitch, x + c * args.x_column, static_cast<size_t>(bytes));
  }
  const char* next = x + columns * args.x_column;
  for (int64_t r = 0; r < rows; r += kSide) {
    // Prefetches some of the next tile, which no hardware prefetcher predicts: reads between the
    // writes.
    for (int64_t c = r; c < std::min(r + kSide, after); ++c) {
      for (int64_t line = 0; line < bytes; line += 64) {
        __builtin_prefetch(next + c * args.x_column + line, 0, 2);
      }
    }
    for (int64_t c = 0; c < columns; c += kSide) {
      turn_square<V, kSide>(gathered + c * kPitch + r * kElement, kPitch, transposed + c * kElement,
                            kPitch);
    }
    for (int64_t i = 0; i < std::min(kSide, rows - r); ++i) {
      put(out + (r + i) * args.out_row, transposed + i * kPitch, columns * kElement, args.streamed);
    }
  }
}

template <class V>
void turn_strip(const PermuteArgs& args, const char* x, char* out, int64_t rows) {
  const int64_t tile = permute_tile(args.element);
  for (int64_t c = 0; c < args.columns; c += tile) {
    const int64_t columns = std::min(tile, args.columns - c);
    turn_tile<V>(args, x + c * args.x_column, out + c * args.element, rows, columns,
                 args.columns - c - columns);
  }
}

void turn(const PermuteArgs& args, const char* x, char* out, int64_t rows) {
  switch (args.element) {
    case 1:
      return turn_strip<u8x16>(args, x, out, rows);
    case 2:
      return turn_strip<u16x8>(args, x, out, rows);
    case 4:
      return turn_strip<u32x4>(args, x, out, rows);
    default:
      return turn_strip<u64x2>(args, x, out, rows);
  }
}

template <class T>
void gather(const char* x, int64_t step, char* out, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) {
    std::memcpy(out + c * static_cast<int64_t>(sizeof(T)), x + c * step, sizeof(T));
  }
}

void row(const PermuteArgs& args, const char* x, char* out) {
  if (args.x_column == args.element) {
    std::memcpy(out, x, static_cast<size_t>(args.columns * args.element));
    return;
  }
  switch (args.element) {
    case 1:
      return gather<uint8_t>(x, args.x_column, out, args.columns);
    case 2:
      return gather<uint16_t>(x, args.x_column, out, args.columns);
    case 4:
      return gather<uint32_t>(x, args.x_column, out, args.columns);
    default:
      return gather<uint64_t>(x, args.x_column, out, args.columns);
  }
}

}  // namespace

void permute_strips(const PermuteArgs& args, int64_t begin, int64_t end) {
  const int64_t tile = permute_tile(args.element);
  for (int64_t strip = begin; strip < end; ++strip) {
    int64_t index = strip / args.strips;
    const int64_t first = strip % args.strips * tile;
    const int64_t rows = std::min(tile, args.rows - first);
    const char* x = args.x + first * args.x_row;
    char* out = args.out + first * args.out_row;
    for (int d = args.outer - 1; d >= 0; --d) {
      x += index % args.extent[d] * args.x_stride[d];
      out += index % args.extent[d] * args.out_stride[d];
      index /= args.extent[d];
    }
    if (args.transposed) {
      turn(args, x, out, rows);
    } else {
      for (int64_t r = 0; r < rows; ++r) row(args, x + r * args.x_row, out + r * args.out_row);
    }
  }
#if defined(__x86_64__)
  if (args.streamed) _mm_sfence();
#endif
}

}  // namespace halftone

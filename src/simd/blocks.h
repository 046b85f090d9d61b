// Runs of plain floats at any stride to f32 in the first-level cache and back: operations of many
// formats then have one loop, over f32.
#pragma once
#include "simd/stream_lines.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

// Elements of a run held at a time: a few runs fit the first-level cache beside their sources.
inline constexpr int kRun = 512;

// After streamed runs, before another thread may look.
HALFTONE_INLINE void fence_streams() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

namespace block_detail {

template <Format F>
HALFTONE_INLINE void read_dense(const char* p, int n, float* out) {
  int i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    store_raw(out + i, load<F>(p, i));
    store_raw(out + i + kLanes, load<F>(p, i + kLanes));
  }
  for (; i < n; i += kLanes) {
    const int count = n - i < kLanes ? n - i : kLanes;
    store_partial<Format::f32>(out, i, load_partial<F>(p, i, count), count);
  }
}

template <Format F>
HALFTONE_INLINE float read_one(const char* p) {
  if constexpr (F == Format::f32) {
    float x;
    std::memcpy(&x, p, sizeof x);
    return x;
  } else {
    uint16_t code;
    std::memcpy(&code, p, sizeof code);
    u16v all{};
    all[0] = code;
    return F == Format::bf16 ? std::bit_cast<float>(static_cast<uint32_t>(code) << 16)
                             : widen_f16(all)[0];
  }
}

// Every second element, as in rows of interleaved pairs.
template <Format F>
HALFTONE_INLINE void read_pairs(const char* p, int n, float* out) {
  int i = 0;
  // A vector of pairs reaches one element past the last one read: the tail goes singly.
  for (; i + kLanes < n; i += kLanes) {
    if constexpr (F == Format::f32) {
      const auto a = load_raw<f32v>(p + int64_t{8} * i);
      const auto b = load_raw<f32v>(p + int64_t{8} * i + int64_t{4} * kLanes);
#if defined(__AVX512F__)
      store_raw(out + i, __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
                                                 24, 26, 28, 30));
#elif defined(__AVX2__)
      store_raw(out + i, __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14));
#else
      store_raw(out + i, __builtin_shufflevector(a, b, 0, 2, 4, 6));
#endif
    } else {
      const auto pairs = load_raw<u32v>(p + int64_t{4} * i);
      if constexpr (F == Format::bf16) {
        store_raw(out + i, bits_as<f32v>(pairs << 16));
      } else {
        store_raw(out + i, widen_f16(narrow_u16(pairs & broadcast_u32(0xffffu))));
      }
    }
  }
  constexpr int kStep = F == Format::f32 ? 8 : 4;
  for (; i < n; ++i) out[i] = read_one<F>(p + int64_t{kStep} * i);
}

template <Format F>
HALFTONE_INLINE void read(const char* p, int64_t stride, int n, float* out) {
  constexpr int64_t kBytes = F == Format::f32 ? 4 : 2;
  if (stride == kBytes) return read_dense<F>(p, n, out);
  if (stride == 2 * kBytes) return read_pairs<F>(p, n, out);
  if (stride == 0) {
    const f32v all = broadcast(read_one<F>(p));
    for (int i = 0; i < n; i += kLanes) store_raw(out + i, all);  // kRun is a multiple of kLanes
    return;
  }
  for (int i = 0; i < n; ++i) out[i] = read_one<F>(p + i * stride);
}

template <Format F>
HALFTONE_INLINE void write(char* p, int64_t stride, int n, const float* x) {
  constexpr int64_t kBytes = F == Format::f32 ? 4 : 2;
  int i = 0;
  if (stride == kBytes) {
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      store_pair<F>(p, i, load_raw<f32v>(x + i), load_raw<f32v>(x + i + kLanes));
    }
  }
  for (; i < n; i += kLanes) {
    const int count = n - i < kLanes ? n - i : kLanes;
    const f32v v = load_partial<Format::f32>(x, i, count);
    if (stride == kBytes) {
      store_partial<F>(p, i, v, count);
      continue;
    }
    char lane[kLanes * kBytes];
    store<F>(lane, 0, v);
    for (int k = 0; k < count; ++k) {
      std::memcpy(p + (i + k) * stride, lane + k * kBytes, static_cast<size_t>(kBytes));
    }
  }
}

}  // namespace block_detail

// n <= kRun elements at p, `stride` bytes apart, as f32: in `buffer`, or where they are.
inline const float* read_run(Format format, const char* p, int64_t stride, int n, float* buffer) {
  switch (format) {
    case Format::f32:
      if (stride == 4) return static_cast<const float*>(static_cast<const void*>(p));
      block_detail::read<Format::f32>(p, stride, n, buffer);
      break;
    case Format::f16:
      block_detail::read<Format::f16>(p, stride, n, buffer);
      break;
    default:
      block_detail::read<Format::bf16>(p, stride, n, buffer);
  }
  return buffer;
}

// Past the caches when `streamed` and the run is whole lines; a fence follows on this thread.
inline void write_run(Format format, char* p, int64_t stride, int n, const float* x,
                      bool streamed = false) {
  const int element = format == Format::f32 ? 4 : 2;
  const int64_t bytes = int64_t{n} * element;
  if (streamed && stride == element && bytes % 64 == 0 &&
      reinterpret_cast<uintptr_t>(p) % 64 == 0) {
    alignas(64) char buffer[kRun * 4];
    if (format != Format::f32) write_run(format, buffer, stride, n, x);
    const void* from = format == Format::f32 ? static_cast<const void*>(x) : buffer;
    stream_lines(static_cast<const uint8_t*>(from), bytes,
                 static_cast<uint8_t*>(static_cast<void*>(p)));
    return;
  }
  switch (format) {
    case Format::f32:
      return block_detail::write<Format::f32>(p, stride, n, x);
    case Format::f16:
      return block_detail::write<Format::f16>(p, stride, n, x);
    default:
      return block_detail::write<Format::bf16>(p, stride, n, x);
  }
}

}  // namespace halftone::HALFTONE_LEVEL

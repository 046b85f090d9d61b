// The row operations that quantize, dequantize and convert are made of, one set per instruction
// level. Rows are contiguous; every level gives the same bits.
#pragma once
#include <cstdint>

#include "formats/recipe.h"
#include "halftone/device.h"

namespace halftone {

// Scales of a row being dequantised: element i is (code - zero) * scales[i / group] * factor, where
// the first product is exact in FP32 and the second is rounded once, to the output.
struct RowScales {
  const float* scales;
  const uint8_t* zeros;  // of asymmetric int4, else null
  int64_t group;
  float factor;
  bool streamed =
      false;  // y starts a line and is written past the caches; a stream_fence() follows
};

// Rows whose blocks reach over all of them, side by side: recipe.group columns a block, 0: all.
struct Band {
  const char* x;
  int64_t stride;  // bytes from row to row
  int64_t rows, columns;
  int64_t part;  // columns that stay in the cache from the maxima to the codes
  uint8_t* codes;
  int64_t codes_stride;
  uint8_t* scales;
};

struct FormatKernels {
  // Bits of the largest |x|: above kInfinityBits when there is a NaN.
  uint32_t (*amax)(Format source, const void* x, int64_t n);
  // codes[i] = encode(x[i] * multiplier); integers are clamped. INT4 adds `zero`. 4-bit codes start
  // on a byte; the high half of an odd last byte becomes 0.
  void (*encode)(Format source, Format target, const void* x, int64_t n, float multiplier, int zero,
                 uint8_t* codes);
  // Scales to powers of two.
  void (*encode_ue8m0)(const float* x, int64_t n, bool down, uint8_t* codes);
  // Sum of (x - decoded)^2 in FP64, element i in partial sum i % 16, when encoded as above and
  // decoded with scale * tensor_scale.
  double (*squared_error)(Format source, Format target, const void* x, int64_t n, float multiplier,
                          int zero, float scale, float tensor_scale);
  // Codes and scales of a row in groups of recipe.group; zeros only when asymmetric. False when a
  // scale overflows its format (f16 scales of huge data).
  bool (*quantize_row)(const Recipe&, Format source, const void* x, int64_t columns, uint8_t* codes,
                       uint8_t* scales, uint8_t* zeros);
  // Likewise of a band, for elements of 8 bits and a recipe that is not adaptive.
  bool (*quantize_band)(const Recipe&, Format source, const Band&);
  // codes: of `format`, starting on a byte.
  void (*dequantize_row)(Format format, const uint8_t* codes, int64_t columns, const RowScales&,
                         Format out, void* y);
  // Scales of a quantised tensor, n in a row.
  void (*decode_scales)(Format format, const void* codes, int64_t n, float* scales);
  // Codes without scales to BF16, exactly.
  void (*decode_bf16)(Format format, const uint8_t* codes, int64_t n, uint16_t* y);
  // Between f32, f16 and bf16.
  void (*convert)(Format source, Format out, const void* x, int64_t n, void* y);
};

// From so many bytes read and written on, no cache holds the result until it is used: writing past
// the caches then saves reading the lines that are written. A thread that did so calls
// stream_fence() before another may look.
inline constexpr int64_t kStreamFrom = int64_t{24} << 20;
inline constexpr int64_t kLineBytes = 64;
inline bool starts_line(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(kLineBytes) == 0;
}
inline void stream_fence() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

// The definition; slow.
const FormatKernels& scalar_format_kernels();
// Of the level in force, or of a given one.
const FormatKernels& format_kernels();
const FormatKernels& format_kernels(CpuLevel);

}  // namespace halftone

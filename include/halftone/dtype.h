// Number formats of tensors and the shape of their scales.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace halftone {

// What is known of each is in the table of src/base/format_traits.h, in the same order.
// Element formats hold one number a code. Block formats (mxfp8, mxfp6, mxfp4, nvfp4) always carry
// scales;
// fp8, int8 and int4 carry scales when they were made by `quantize`.
enum class Format : uint8_t {
  f32,
  f16,
  bf16,
  fp8_e4m3,  // finite only: largest 448, NaN 0x7f, no infinity
  fp8_e5m2,
  mxfp8,  // E4M3, one UE8M0 scale per 32
  mxfp4,  // E2M1, one UE8M0 scale per 32
  nvfp4,  // E2M1, one E4M3 scale per 16, one FP32 scale per tensor
  int8,
  int4,  // stored as code = q + 8 (symmetric) or code - zero (asymmetric), two a byte
  i32,
  i64,
  u8,
  ue8m0,       // a power of two, 2^(code - 127): the scales of the mx formats
  mxfp6,       // E2M3, one UE8M0 scale per 32; four elements in three bytes, the first lowest
  mxfp6_e3m2,  // E3M2, likewise
};
inline constexpr int kFormatCount = 16;

// Bits of one element in memory; 4-bit formats pack element 2i in the low nibble, 6-bit ones four
// elements in three bytes.
int bits(Format);
const char* name(Format);
// Accepts the names of `name()` and the usual aliases (float32, half, bfloat16, fp8, ...); an
// unknown name is an Error that offers the nearest one.
Format parse_format(std::string_view);

// Bytes of `count` packed elements.
inline int64_t packed_bytes(Format f, int64_t count) { return (count * bits(f) + 7) / 8; }

// Numbers stored as they are, without scales.
inline bool is_plain_float(Format f) {
  return f == Format::f32 || f == Format::f16 || f == Format::bf16;
}
inline bool is_integer_index(Format f) { return f == Format::i32 || f == Format::i64; }
// Formats whose scales are part of the definition.
bool is_block(Format);
inline bool is_fp8(Format f) { return f == Format::fp8_e4m3 || f == Format::fp8_e5m2; }

// How scale factors of the last two dimensions (rows M, groups Ksf) lie in memory; see
// docs/add-a-format.md. `linear` is row-major [M, Ksf].
enum class ScaleLayout : uint8_t {
  linear,
  tiled_128x4,  // the layout of tensor-core block scaling: 512-byte tiles, rows padded to 128
  tiled_8x4,    // its variant for few rows
  packed,       // MN-major 32-bit words of four UE8M0 codes consecutive in K
};
const char* name(ScaleLayout);

// Which elements share a scale: blocks of `block_rows` x `block_cols` over the last two dimensions,
// 0 meaning the whole dimension. Per tensor {0,0}, per row {1,0}, 1x128 {1,128}, 128x128 {128,128}.
struct Scaling {
  Format format = Format::f32;  // of one scale: f32, f16, bf16, fp8_e4m3 (nvfp4), ue8m0 (mx)
  int64_t block_rows = 0;
  int64_t block_cols = 0;
  ScaleLayout layout = ScaleLayout::linear;
  bool asymmetric = false;  // int4 only: a zero point (u8, 0..15) beside each scale
  bool operator==(const Scaling&) const = default;
};

// The scaling that `quantize` uses for a format when none is given: fp8 128x128, int8 per row,
// int4 groups of 32 with f16 scales, block formats as they are defined.
Scaling default_scaling(Format);
std::string to_string(const Scaling&);

}  // namespace halftone

// GEMM y = x W^T on CPUs with weights in checkpoint layout: the kernel interface that matmul and
// moe share.
//
// Numerics, the same for one row of x as for a thousand: K is cut into chunks of 8 (FP32) or 16
// (BF16) elements per vector lane; lane d of a chunk adds up the elements from 8d or 16d on
// (quantised weights) or every lanes-th element (floating-point weights). Scales within a row
// multiply the lanes of a chunk before they are added to the accumulator of a block of chunks. At
// the end of a block the lanes are added by halving and the result is added to the sum of the
// blocks before it. The GEMV and the GEMM below follow this tree operation by operation, hence give
// the same bits.
//
// Plain structs only: this header is read by files compiled once per ISA level.
#pragma once
#include <cstdint>

#include "base/format_traits.h"
#include "halftone/activation_function.h"

namespace halftone::gemm {

// How an element of a weight is stored. `int8_rows`: int8 without scales within the row, in the
// order of plain floats, which one instruction widens. `dequantised`: groups that do not align with
// lanes; rows are expanded to f32 one element at a time.
enum class Code : uint8_t {
  f32,
  f16,
  bf16,
  int8_rows,
  e4m3,
  e5m2,
  int8,
  e2m1,
  int4,
  int4_asymmetric,
  dequantised,
};

// A weight [n, k] and its scales, strides in bytes.
struct Weights {
  const uint8_t* data = nullptr;
  int64_t row_bytes = 0;
  int64_t n = 0, k = 0;
  Code code = Code::f32;

  const uint8_t* scales = nullptr;  // null: 1
  Format scale_format = Format::f32;
  int64_t scale_row = 0, scale_step = 0;  // to the next row of blocks, to the next group of a row
  int64_t block_rows = 0;                 // 0: one row of blocks for the whole matrix
  int64_t group = 0;                      // elements of K that share a scale; 0: the whole row
  const uint8_t* zeros = nullptr;         // int4_asymmetric, u8
  int64_t zero_row = 0, zero_step = 0;
  float tensor_scale = 1.0f;

  // Of a `dequantised` weight: elements [k0, k0 + count) of row n.
  void (*dequantise)(const Weights&, int64_t n, int64_t k0, int64_t count, float* out) = nullptr;
  Format format = Format::f32;  // of the tensor
};

constexpr bool scaled_in_row(const Weights& w) {
  return w.scales != nullptr && w.group > 0 && w.code != Code::dequantised;
}
// A format with the elements of a code.
HALFTONE_TRAIT Format format_of(Code code) {
  switch (code) {
    case Code::f16:
      return Format::f16;
    case Code::bf16:
      return Format::bf16;
    case Code::e4m3:
      return format_with(Element::e4m3);
    case Code::e5m2:
      return format_with(Element::e5m2);
    case Code::int8:
    case Code::int8_rows:
      return format_with(Element::int8);
    case Code::e2m1:
      return format_with(Element::e2m1);
    case Code::int4:
    case Code::int4_asymmetric:
      return format_with(Element::int4);
    default:  // dequantised rows too
      return Format::f32;
  }
}
// Whether lanes hold octets of K (quantised codes) or K in natural order.
HALFTONE_TRAIT bool octet_order(Code code) {
  return is_quantised(format_of(code)) && code != Code::int8_rows;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The epilogue of one row: y = sums (integers: less `offset`, then converted) * scale[i] *
// row_scale + bias[i], then the activation, or gated with the row `up` made in the same way, then +
// residual[i]; each step in FP32.
struct EpilogueArgs {
  const float* sums = nullptr;
  int64_t count = 0;
  bool integer = false;
  uint32_t offset = 0;
  float row_scale = 1;
  const float* scale = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  void* out = nullptr;
  Format bias_format = Format::f32, residual_format = Format::f32, out_format = Format::f32;
  ActivationFunction activation{Activation::identity};
  const float* up = nullptr;  // null: not gated
  const float* up_scale = nullptr;
  const void* up_bias = nullptr;
  GatedActivation gated;
};

// Largest vector tile of any ISA level, for buffers on the stack.
inline constexpr int kMaxLanes = 16;
inline constexpr int64_t kBlockBytes = 4096;  // of one row of a block of K, dequantised
inline constexpr int kMaxBlockChunks = 16;

// Weights to prefetch, a few lines at a time: memory is slow to start, and a burst of requests
// would block the loads of the GEMM.
struct Prefetch {
  const uint8_t* row = nullptr;
  int64_t row_bytes = 0, bytes = 0, rows = 0;  // `bytes` of each row
  int64_t at = 0;                              // of the current row
  int64_t lines_per_tile = 0;
};

// sums[m][0..tile_columns) = (first ? 0 : itself) + a block of K of m rows of x times a strip.
struct GemmArgs {
  const void* x = nullptr;
  int64_t x_row = 0, m = 0;  // bytes from row to row
  const void* strip = nullptr;
  const float* scales = nullptr;    // null for weights without scales in the row
  const float* x_scales = nullptr;  // null, or vectors [m][block_chunks]; then `scales` is not null
  int64_t chunks = 0;
  float* sums = nullptr;
  int64_t sums_stride = 0;
  bool first = false;
  Prefetch* prefetch = nullptr;
};

// A few rows of x for a pass over W: sums[m][n - n0]. With `x_scales`, vectors [chunk], there is
// one row.
struct GemvArgs {
  const void* x = nullptr;
  int64_t x_row = 0, x_block = 0, m = 0;  // bytes to the next row, block of K
  const float* x_scales = nullptr;
  float* sums = nullptr;
  int64_t sums_stride = 0;
};

// The kernels of one ISA level and one arithmetic. A packed row of x is a sequence of blocks of
// `chunk * block_chunks` elements of `element_bytes`, the last one padded with zeros.
struct Kernels {
  int32_t lanes = 0;
  int32_t chunk = 0;  // elements of K: 8 or 16 per lane
  // Chunks whose lanes are added up together; with scales within the row, which take room beside
  // the strip in the L1 cache, as many or half.
  int32_t block_chunks = 0, scaled_block_chunks = 0;
  int32_t element_bytes = 0;
  int32_t tile_columns = 0;
  Format element = Format::f32;  // rows of x in this format and natural order need no packing

  // Packs one row of x; `stride` bytes from block to block.
  void (*pack)(const void* x, Format format, bool octets, int64_t k, void* out, int64_t stride);
  // Rows n0 <= n < n1 of W.
  void (*gemv)(const Weights&, int64_t n0, int64_t n1, const GemvArgs&);
  // Dequantises `count` chunks, at most a block, of `rows` <= tile_columns rows to vectors
  // [chunk][step][tile_columns], a strip, and their scales to vectors [chunk][tile_columns]; rows
  // that do not exist become 0.
  void (*dequantise_strip)(const Weights&, int64_t n0, int64_t rows, int64_t chunk0, int64_t count,
                           void* strip, float* scales);
  void (*gemm_pass)(const GemmArgs&);
  void (*epilogue)(const EpilogueArgs&);
  // INT8 dot products, exact in 32-bit integers until the epilogue, each too large by `weight_bias`
  // times the sum of the row of x.
  bool integer = false;
  int32_t weight_bias = 0;
};

}  // namespace halftone::gemm

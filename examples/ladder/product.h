// What every step computes: C = A B^T in bf16, summed in f32.
#pragma once
#include <cstdint>

#include "base/launch.h"
#include "hw/convert/convert.h"
#include "hw/copy/tensor_map.h"

namespace halftone::ladder {

// Row-major matrices of bf16; k and n are multiples of 8, so every row starts on 16 bytes.
struct Product {
  const uint16_t* a;  // [m, k]
  const uint16_t* b;  // [n, k]
  uint16_t* c;        // [m, n]
  uint32_t m, n, k;
};

// From step 6 on, boxes of the matrices are copied by tensor maps, which the host makes. Every box
// is 64 elements wide, the 128 bytes of one swizzle pattern, and as high as the step says.
struct MappedProduct {
  Product product;
  hw::TensorMap a, b, c;
};
inline constexpr uint32_t kBoxWidth = 64;
struct BoxRows {
  uint32_t a, b, c = 0;  // 0: the step has no map of C
};

HT_HOST_DEVICE uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// One block for each tile_m x tile_n tile of C, tiles of one row of C side by side.
inline LaunchShape grid_of_tiles(uint32_t m, uint32_t n, uint32_t tile_m, uint32_t tile_n,
                                 uint32_t threads, uint32_t shared_bytes) {
  return {.grid = {ceil_div(n, tile_n), ceil_div(m, tile_m), 1},
          .block = {threads, 1, 1},
          .cluster = {},
          .shared_bytes = shared_bytes};
}

// Two neighbours of a row as they are stored.
struct ToBf16 {
  HT_DEVICE uint32_t operator()(float low, float high) const { return hw::cvt_bf16x2(low, high); }
};

}  // namespace halftone::ladder

// Products of many rows on Hopper, host side: which the kernel takes, and how it runs them.
#pragma once
#include <span>
#include <string>

#include "ops/gemm/sm80/launch.h"
#include "pipe/tensor_map.h"

namespace halftone::gemm {

// Matrices of one layout, by how many steps of 2^shift bytes they lie behind the first: one tensor
// map has them all.
struct Sm90Matrices {
  const uint8_t* first = nullptr;
  uint32_t shift = 4;
  int64_t last = 0;             // steps to the last
  bool aligned = false;         // as the copy engine wants all of them
  uint32_t scales_aligned = 1;  // all begin at a multiple of so many bytes, 16 at most
  bool scales_of_runs = false;  // 32 rows of a tile have the same
  // Where the scales of the first rows lie, as the matrices above; null: not on 16 bytes each.
  const uint8_t* first_scale = nullptr;
  uint32_t scale_shift = 4;
  int64_t last_scale = 0;
};
Sm90Matrices sm90_matrices(const GpuLayout&, const GpuSource*, size_t count);

struct Sm90Problem {
  int64_t m = 0, n = 0, k = 0;
  int64_t experts = 0;  // rows of x lie by expert, in parts; 0: one weight for all of them
  bool gate = false;
  Format weight = Format::bf16;
  bool scaled = false;
  Scaling scaling;
  bool transposed = false;  // W is [K, N], of 16-bit elements, N a multiple of 8
};

// Empty, or the rule that a problem breaks which other kernels take.
std::string refuse_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&);
// What a block works on, of `multiprocessors`.
std::string describe_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&, int multiprocessors);
// Whether the copy engine takes W and `x` as they lie: from 16 bytes to 16 bytes. `x` is undefined
// where it does not enter as it is given.
bool fits_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&, const GpuLayout&,
               const Sm90Matrices&, const Tensor& x);
// Rows of a part of an expert.
uint32_t chunk_rows_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&);
// Matrices in boxes of `rows` rows of 128 bytes; of [K, N], panels of 64 rows.
pipe::TensorBox weight_box_sm90(const GpuLayout&, const Sm90Problem&, const Sm90Matrices&,
                                uint32_t rows);
// Whether x is to enter as E4M3 codes.
bool takes_codes_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&);
// `parts`: how many there are at most; the product has their list.
void launch_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&, const GpuGemm&,
                 const Sm90Matrices&, uint32_t parts, Stream&);
// Several matrices by the same x, each with each as can_fuse_sm90 has it, in one launch; the
// problem's n counts the rows of all. False, and nothing happens, where they are better run apart.
bool launch_fused_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&, std::span<const GpuGemm>,
                       const Tensor& x, Stream&);

}  // namespace halftone::gemm

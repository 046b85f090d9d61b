// How the operands of a GEMM lie in memory: part of its problem, so that a plan names the kernel
// that runs.
#pragma once

namespace halftone {

// Kernels that copy by 16 bytes (TMA, cp.async, cuBLASLt) need operands that lie so. Bytes are a
// power of two, 1 to 16, at which every row begins: the address and the distance from row to row;
// 0: as of a contiguous tensor at the beginning of an allocation of `cudaMalloc`. Those of given
// tensors: `alignment_of`.
struct OperandAlignment {
  int x = 0, weight = 0;  // of one row of x its address alone; of every weight matrix
  // Linear scales of the weight, row by row, and their storage as such.
  int weight_scales = 0, scale_storage = 0;
  int out = 0, residual = 0;
  int norm = 0;  // the weight of a norm
  // The scales of a row of the weight are neighbours.
  bool packed_scales = true;
  // Several matrices (gate and up, experts) lie within what one tensor map reaches: 2^31 times the
  // power of two, 16 to 2^30, that divides their distances.
  bool one_tensor_map = true;
  // Of experts: 32 rows of a matrix share a scale where blocks of scales have as many rows. Not
  // where a matrix begins within a block of a fused tensor.
  bool whole_scale_blocks = true;
  // As cuBLASLt wants the rest: rows that do not overlap, contiguous scales on 16 bytes, no tensor
  // scale, and rows of the residual as far apart as those of out.
  bool cublaslt = true;
  bool operator==(const OperandAlignment&) const = default;
};

}  // namespace halftone

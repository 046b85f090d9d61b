// Dense products by cuBLASLt, which is looked for when the first one is planned: Halftone runs
// without it.
#pragma once
#include <memory>
#include <string>

#include "halftone/matmul.h"

namespace halftone::dense {

// One product with the algorithm that cuBLASLt's heuristic names first, asked once, so that results
// do not depend on what ran before. Sums are in f32; parts of K are added in f32, in one order.
class CublasLtGemm {
 public:
  virtual ~CublasLtGemm() = default;
  // Where x is rounded on the way, its codes, row after row, and their scales, likewise.
  struct Codes {
    const void* data = nullptr;
    const float* scales = nullptr;
  };
  virtual void run(const MatmulTensors&, const Codes&, Stream&) const = 0;
  virtual int64_t bytes() const = 0;  // of memory on the device
};

// E4M3 by E4M3 with f32 scales of 1x128 and of 128x128, which cuBLASLt multiplies on Hopper alone.
bool scaled_by_blocks(const MatmulProblem&);
// "" or why the library is not there.
std::string cublaslt_missing();
// Null where it has no algorithm for the problem on this device.
std::unique_ptr<CublasLtGemm> cublaslt_gemm(const MatmulProblem&, const Device&);

}  // namespace halftone::dense

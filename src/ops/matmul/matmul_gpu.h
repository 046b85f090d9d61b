// Matrix products on a GPU.
#pragma once
#include "ops/matmul/together.h"

namespace halftone::dense {

// "" or why the kernel does not take the problem.
std::string accepts_gpu(const MatmulProblem&);
std::string accepts_sm90(const MatmulProblem&);
std::string accepts_sm90_gemv(const MatmulProblem&);
std::string accepts_sm90_small_m(const MatmulProblem&);
std::string accepts_cublaslt(const MatmulProblem&);
std::string accepts_cublaslt_blocks(const MatmulProblem&);

struct MatmulGpu {
  // Null: not on this device, after all.
  std::shared_ptr<void> (*workspace)(const MatmulProblem&, const Device&, int64_t* bytes);
  void (*run)(const MatmulPlan&, const MatmulTensors&, Stream&);
  std::string (*describe)(const MatmulProblem&, const Device&);
  // Whether `run` normalises x by itself, where the problem has a norm; null: never.
  bool (*norms)(const MatmulProblem&) = nullptr;
};
extern const MatmulGpu matmul_gpu;           // of every GPU
extern const MatmulGpu matmul_sm90;          // many rows on wgmma
extern const MatmulGpu matmul_cublaslt;      // dense, by the vendor's library
extern const MatmulGpu matmul_sm90_gemv;     // one row, W by tensor copies
extern const MatmulGpu matmul_sm90_small_m;  // of codes, some dozens of rows

// run_fused of plans of one kernel, at least one.
bool run_fused_gpu(std::span<const MatmulCall>, const MatmulGpu*, Stream&);

}  // namespace halftone::dense

// Matrix products on a GPU.
#pragma once
#include "halftone/matmul.h"

namespace halftone::products {

// "" or why the kernel does not take the problem.
std::string accepts_gpu(const MatmulProblem&);

struct MatmulGpu {
  std::shared_ptr<void> (*workspace)(const MatmulProblem&, const Device&, int64_t* bytes);
  void (*run)(const MatmulPlan&, const MatmulTensors&, Stream&);
  std::string (*describe)(const MatmulProblem&);
};
extern const MatmulGpu matmul_gpu;

}  // namespace halftone::products

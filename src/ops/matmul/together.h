// Horizontally fused GEMMs: several weights by the same x in one launch, for few rows of x by
// matrices too small to fill a GPU each.
#pragma once
#include <span>

#include "halftone/matmul.h"

namespace halftone {

struct MatmulCall {
  const MatmulPlan* plan;
  const MatmulTensors* tensors;
};

// Runs all in one launch where a kernel can fuse them, and returns whether it did; else nothing has
// run: up to three GEMVs, or small-M GEMMs of quantised weights, on sm_90a. The bits are those of
// run(); for more than one row with the split-K factor that the tiles of all together have. Errors:
// those of run().
bool run_fused(std::span<const MatmulCall>, Stream&);

// Whether the GEMM fuses the norm of x: no kernel in front computes it.
bool normalises(const MatmulProblem&, const Device&);

}  // namespace halftone

// Several products of the same x, in one launch: a row by matrices too small to fill a chip each.
#pragma once
#include <span>

#include "halftone/matmul.h"

namespace halftone {

struct MatmulCall {
  const MatmulPlan* plan;
  const MatmulTensors* tensors;
};

// Runs all where one kernel takes them together, and says whether it did; else nothing has run. The
// bits are those of run(). Errors: those of run().
bool run_together(std::span<const MatmulCall>, Stream&);

}  // namespace halftone

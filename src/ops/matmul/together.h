// Several products of the same x, in one launch: few rows by matrices too small to fill a chip
// each.
#pragma once
#include <span>

#include "halftone/matmul.h"

namespace halftone {

struct MatmulCall {
  const MatmulPlan* plan;
  const MatmulTensors* tensors;
};

// Runs all where one kernel takes them together, and says whether it did; else nothing has run: up
// to three products of one row, or of some dozens by codes, on Hopper. The bits are those of run();
// of more than one row in as many parts of K as all the tiles have together. Errors: those of
// run().
bool run_fused(std::span<const MatmulCall>, Stream&);

// Whether the product normalises x itself: no kernel does so ahead of it.
bool normalises(const MatmulProblem&, const Device&);

}  // namespace halftone

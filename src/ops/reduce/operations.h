// Kinds of reductions, for CPUs and GPUs.
#pragma once
#include "halftone/reduce.h"

namespace halftone {

constexpr bool is_arg(Reduction r) { return r == Reduction::argmax || r == Reduction::argmin; }
constexpr bool is_extreme(Reduction r) {
  return is_arg(r) || r == Reduction::max || r == Reduction::min;
}
inline int axis_of(const ReduceProblem& p) { return p.axis < 0 ? p.axis + p.shape.rank() : p.axis; }

}  // namespace halftone

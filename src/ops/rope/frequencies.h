// RoPE frequencies and the rules of their options.
#pragma once
#include <string>

#include "halftone/rope.h"

namespace halftone {

// Why the options do not fit; empty when they do.
std::string refuse_rope(const RopeOptions&, int64_t head_dim);

// Largest position plus 1 where the scaling depends on it, else 0. Positions of a wrong format
// count as none: the operation itself refuses them.
int64_t sequence_length(const RopeOptions&, const Tensor& positions);

}  // namespace halftone

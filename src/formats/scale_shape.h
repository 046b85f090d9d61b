// How many scales a tensor has.
#pragma once
#include "halftone/tensor.h"

namespace halftone {

// Extents of its scales in the linear layout.
Shape scale_shape(const Shape& shape, const Scaling&);

}  // namespace halftone

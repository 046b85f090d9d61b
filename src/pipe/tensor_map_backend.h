// Between the description of a tensor map and those who encode it.
#pragma once
#include "pipe/tensor_map.h"
#include "sim/memory/tensor_map.h"

namespace halftone::pipe {

// The element type as a map names it; the enumerators have the driver's numbers.
sim::TensorMapType element_type(hw::Type);

// By the driver, for the current CUDA device. Error::unsupported in a build without CUDA.
hw::TensorMap make_cuda_tensor_map(const TensorBox&);

}  // namespace halftone::pipe

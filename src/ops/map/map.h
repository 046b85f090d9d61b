// What activations and elementwise arithmetic share: operands laid out for the kernels, and the
// run.
#pragma once
#include "base/kernel_table.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"
#include "ops/map/kernels.h"

namespace halftone {

using MapFunctions = CpuOrGpu<MapFunction, MapGpuFunction>;

// Broadcast to `shape` by numpy's rule: aligned at the last dimension, extents of 1 repeat.
// `operation` and `argument` name the operand in errors.
MapOperand map_operand(const char* operation, const char* argument, const Tensor&,
                       const Shape& shape, Format, const Device&);

// Fills in the dimensions (of `shape`, merged where all operands allow) and runs.
void run_map(const MapFunctions&, MapArgs&, const Shape& shape, Stream&);

}  // namespace halftone

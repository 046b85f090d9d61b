// GPU entries of the fused heads kernel from sm_89 on, which convert to FP8 by instructions.
#include "hw/image.h"
#include "ops/heads/gpu.cuh"

namespace halftone {
template <pipe::Access kAccess>
using Heads = HeadsGpu<kAccess, true>;
}  // namespace halftone

HT_GPU_ENTRY(halftone::Heads<halftone::pipe::Access::f16>)
HT_GPU_ENTRY(halftone::Heads<halftone::pipe::Access::bf16>)

// GPU entries of the fused heads kernel, before sm_89: FP8 conversion in software.
#include "hw/image.h"
#include "ops/heads/gpu.cuh"

namespace halftone {
template <pipe::Access kAccess>
using Heads = HeadsGpu<kAccess, false>;
}  // namespace halftone

HT_GPU_ENTRY(halftone::Heads<halftone::pipe::Access::f16>)
HT_GPU_ENTRY(halftone::Heads<halftone::pipe::Access::bf16>)

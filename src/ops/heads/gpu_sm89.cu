#include "hw/image.h"
#include "ops/heads/gpu.cuh"

namespace halftone {
template <pipe::Access kAccess>
using Heads = HeadsGpu<kAccess, true>;
}  // namespace halftone

HT_GPU_ENTRY(halftone::Heads<halftone::pipe::Access::f16>)
HT_GPU_ENTRY(halftone::Heads<halftone::pipe::Access::bf16>)

#include "cuda/kernels_sm90.h"

#include "hw/entry.h"

namespace halftone::test {

const void* gpu_Ranks() { return hw::gpu_entry<Ranks>(); }
const void* gpu_Step() { return hw::gpu_entry<Step>(); }

}  // namespace halftone::test

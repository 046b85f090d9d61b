#include "cuda/kernels.h"

#include "hw/entry.h"

namespace halftone::test {

const void* gpu_Scale() { return hw::gpu_entry<Scale>(); }
const void* gpu_Reverse() { return hw::gpu_entry<Reverse>(); }
const void* gpu_Busy() { return hw::gpu_entry<Busy>(); }
const void* gpu_Trap() { return hw::gpu_entry<Trap>(); }

}  // namespace halftone::test

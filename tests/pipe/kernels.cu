#include "pipe/kernels.h"

#include "hw/entry.h"

namespace halftone::test {

const void* gpu_DoubleTiles() { return hw::gpu_entry<DoubleTiles>(); }
const void* gpu_StoreRing() { return hw::gpu_entry<StoreRing>(); }
const void* gpu_WriteSums() { return hw::gpu_entry<WriteSums>(); }

}  // namespace halftone::test

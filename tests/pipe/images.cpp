#include "pipe/images.h"

#include "hw/entry.h"
#include "pipe/kernels.h"

namespace halftone::test {

#if HALFTONE_PIPE_TEST_ON_GPU
#define HT_ENTRY(kernel) gpu_##kernel()
const void* gpu_DoubleTiles();
const void* gpu_StoreRing();
const void* gpu_WriteSums();
#else
#define HT_ENTRY(kernel) nullptr
#endif

#define HT_IMAGE(kernel, first)                       \
  const KernelImage k##kernel{#kernel,                \
                              Arch::first,            \
                              HT_ENTRY(kernel),       \
                              hw::sim_body<kernel>,   \
                              sizeof(kernel::Params), \
                              kernel::kThreads,       \
                              kernel::kMinBlocks};
HT_IMAGE(DoubleTiles, sm_90a)
HT_IMAGE(StoreRing, sm_90a)
HT_IMAGE(WriteSums, sm_90a)

}  // namespace halftone::test

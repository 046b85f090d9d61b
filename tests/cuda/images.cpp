#include "cuda/images.h"

#include "cuda/kernels.h"
#include "cuda/kernels_sm90.h"
#include "hw/entry.h"

namespace halftone::test {

#define HT_IMAGE(kernel, first)                                                                   \
  const void* gpu_##kernel();                                                                     \
  const KernelImage k##kernel{                                                                    \
      #kernel,         Arch::first, gpu_##kernel(), hw::sim_body<kernel>, sizeof(kernel::Params), \
      kernel::kThreads};
HT_IMAGE(Scale, sm_80)
HT_IMAGE(Reverse, sm_80)
HT_IMAGE(Busy, sm_80)
HT_IMAGE(Trap, sm_80)
HT_IMAGE(Ranks, sm_90a)
HT_IMAGE(Step, sm_90a)

}  // namespace halftone::test

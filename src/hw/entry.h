// The entry point of a kernel struct (`base/launch.h`): a __global__ function under nvcc, a plain
// function that runs one simulated thread elsewhere.
#pragma once
#include "hw/target.h"

namespace halftone::hw {

#if defined(__CUDACC__)
template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kMinBlocks)
    kernel_entry(const __grid_constant__ typename Kernel::Params params) {
  Kernel::run(params);
}
template <class Kernel>
const void* gpu_entry() {
#if HALFTONE_NO_GPU_CODE  // for none of this kernel's architectures (halftone_cuda_sources)
  return nullptr;
#else
  return reinterpret_cast<const void*>(&kernel_entry<Kernel>);
#endif
}
#else
template <class Kernel>
void sim_body(const void* params) {
  Kernel::run(*static_cast<const typename Kernel::Params*>(params));
}
#endif

}  // namespace halftone::hw

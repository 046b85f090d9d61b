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

// The entry of one of several instances of a kernel template. With HALFTONE_CUDA_SAMPLE the first
// alone is compiled, and the others have none.
template <class First, class... Rest>
const void* gpu_entry_at(int index) {
#if HALFTONE_CUDA_SAMPLE
  return index == 0 ? gpu_entry<First>() : nullptr;
#else
  const void* const entries[] = {gpu_entry<First>(), gpu_entry<Rest>()...};
  return entries[index];
#endif
}
#else
template <class Kernel>
void sim_body(const void* params) {
  Kernel::run(*static_cast<const typename Kernel::Params*>(params));
}
#endif

}  // namespace halftone::hw

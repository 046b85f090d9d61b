// A kernel struct as the host starts it, with its GPU entry and its body for the simulator.
//
// `<stem>.cuh` holds the kernel, `<stem>.cpp` the host side, and `<stem>.cu` is
//   #include "hw/image.h"
//   #include "<stem>.cuh"
//   HT_GPU_ENTRY(Kernel)
// halftone_kernels(<stem>) in the folder's CMakeLists.txt compiles the three; where there is no
// CUDA toolkit, the kernel runs on the simulator alone.
#pragma once
#include "base/launch.h"
#include "hw/entry.h"
#if HALFTONE_CUDA_SAMPLE
#include "hw/sample.h"
#endif

namespace halftone::hw {

// The __global__ function of a kernel: made in its .cu, or null in a build without CUDA.
template <class Kernel>
const void* gpu_entry_of();

#if defined(__CUDACC__) && HALFTONE_CUDA_SAMPLE
// Of the instances of a kernel template in a file the first alone is compiled (hw/sample.h).
#define HT_GPU_ENTRY(...) HT_SAMPLED_ENTRY(__COUNTER__, __VA_ARGS__)
#define HT_SAMPLED_ENTRY(number, ...)                             \
  template <>                                                     \
  inline constexpr uint64_t halftone::hw::kSampled<number> =      \
      halftone::hw::template_in_file<__VA_ARGS__>(__FILE__);      \
  template <>                                                     \
  const void* halftone::hw::gpu_entry_of<__VA_ARGS__>() {         \
    if constexpr (halftone::hw::is_first_of_template<number>()) { \
      return halftone::hw::gpu_entry<__VA_ARGS__>();              \
    } else {                                                      \
      return nullptr;                                             \
    }                                                             \
  }
#elif defined(__CUDACC__)
#define HT_GPU_ENTRY(...)                                 \
  template <>                                             \
  const void* halftone::hw::gpu_entry_of<__VA_ARGS__>() { \
    return halftone::hw::gpu_entry<__VA_ARGS__>();        \
  }
#else
#if !HALFTONE_HAS_CUDA
template <class Kernel>
const void* gpu_entry_of() {
  return nullptr;
}
#endif

template <class Kernel>
KernelImage image_of(const char* name, Arch arch = Arch::sm_80) {
  return {name,
          arch,
          gpu_entry_of<Kernel>(),
          sim_body<Kernel>,
          sizeof(typename Kernel::Params),
          Kernel::kThreads,
          Kernel::kMinBlocks};
}
#endif

}  // namespace halftone::hw

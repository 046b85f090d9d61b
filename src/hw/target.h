// What a kernel source is compiled for: a GPU pass of nvcc, or the simulator (any host compiler).
// The only file that asks the compiler which pass this is.
#pragma once
#include <cstdint>

#include "hw/features.h"

#if defined(__CUDACC__)
#define HT_DEVICE __device__ __forceinline__
#define HT_HOST_DEVICE __host__ __device__ constexpr
// Before a loop over registers: their indices become constants.
#define HT_UNROLL _Pragma("unroll")
// Before a loop whose body is long: it stays a loop.
#define HT_ROLLED _Pragma("unroll 1")
#else
#include <source_location>
#define HT_DEVICE inline
#define HT_HOST_DEVICE constexpr
#define HT_UNROLL
#define HT_ROLLED
#endif

// True while the instructions themselves are compiled; false on the simulator, and in nvcc's host
// pass, which only parses device code.
#if defined(__CUDA_ARCH__)
#define HT_GPU 1
#else
#define HT_GPU 0
#endif

namespace halftone::hw {

// Where in a kernel an instruction stands: the last parameter of every hw function. Reports of the
// simulator name it; on the GPU it is empty and costs nothing. Functions that call hw functions on
// a kernel's behalf (rings, tile loaders) take one too and pass it on.
#if defined(__CUDACC__)
struct Site {
  static __device__ __host__ constexpr Site current() { return {}; }
};
#else
using Site = std::source_location;
#endif

// The architecture this pass compiles for. Functions whose instruction is not everywhere are
// templates over it, so that a kernel that calls one on the wrong architecture does not compile:
//   template <class Target = ThisTarget>
//   HT_DEVICE void wgmma_fence(Site site = Site::current()) {
//     static_assert(Target::has(Feature::wgmma), "wgmma exists on sm_90a only");
// The simulator has one compilation for all architectures; there the model asks at run time.
struct ThisTarget {
  static constexpr bool has(Feature feature) {
#if !defined(__CUDA_ARCH__)
    return static_cast<void>(feature), true;
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
    return available(feature, Arch::sm_90a);
#elif defined(__CUDA_ARCH_FEAT_SM100_ALL)
    return available(feature, Arch::sm_100a);
#elif defined(__CUDA_ARCH_FEAT_SM120_ALL)
    return available(feature, Arch::sm_120a);
#elif __CUDA_ARCH__ >= 890
    return available(feature, Arch::sm_89);
#else
    return available(feature, Arch::sm_80);
#endif
  }
};

}  // namespace halftone::hw

// Starting a kernel: one call for the GPU and for the simulated GPU.
//
// A kernel is a struct with a parameter block and a body, in a header that nvcc and the host
// compiler both take:
//   struct Transpose {
//     struct Params { const float* in; float* out; int rows, cols; };
//     static constexpr uint32_t kThreads = 256, kMinBlocks = 1;   // launch bounds
//     HT_DEVICE static void run(const Params&);
//   };
// `<stem>.cu` makes its GPU entry, `<stem>_sim.cpp` its simulated one (`hw/entry.h`), and a host
// file joins them in a KernelImage.
#pragma once
#include <cstddef>
#include <cstdint>

#include "halftone/device.h"
#include "halftone/stream.h"

namespace halftone {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  constexpr uint64_t count() const { return uint64_t{x} * y * z; }
  bool operator==(const Dim3&) const = default;
};

struct LaunchShape {
  Dim3 grid = {}, block = {};
  Dim3 cluster = {};          // blocks per cluster; divides the grid
  uint32_t shared_bytes = 0;  // dynamic shared memory
  bool programmatic = false;  // may start before the kernel ahead in the stream has ended
};

// Both halves of one kernel; either may be missing from a build.
struct KernelImage {
  const char* name;                      // in reports and errors
  Arch arch;                             // the first architecture that has its instructions
  const void* gpu_entry;                 // the __global__ function, or null
  void (*sim_body)(const void* params);  // runs one simulated thread, or null
  size_t params_bytes;
  uint32_t threads;         // launch bound
  uint32_t min_blocks = 1;  // launch bound: resident blocks an SM
};

// Of kernels that begin with launch_dependents_and_wait(): launched before the kernel ahead has
// ended, where the device can.
inline LaunchShape with_pdl(LaunchShape shape, const Stream& stream) {
  shape.programmatic = stream.device().arch() >= Arch::sm_90a;
  return shape;
}

// Checks the shape against the device's limits and starts the kernel; asynchronous on a GPU.
// Errors name the kernel, the limit and the value asked for.
void launch(const KernelImage&, const LaunchShape&, const void* params, Stream&);

template <class Params>
void launch(const KernelImage& kernel, const LaunchShape& shape, const Params& params,
            Stream& stream) {
  launch(kernel, shape, static_cast<const void*>(&params), stream);
}

}  // namespace halftone

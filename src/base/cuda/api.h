// Calls of the CUDA runtime: every one is checked, and made with its device current.
#pragma once
#include <cuda_runtime_api.h>

#include "base/message.h"
#include "halftone/device.h"
#include "halftone/stream.h"

namespace halftone::cuda {

// Throws with what was tried and what the runtime says.
template <class... Parts>
void check(cudaError_t error, const Parts&... tried) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // errors that do not break the context are forgotten with this one
  fail(error == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device, tried...,
       ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
}

// The thread's current device inside a scope.
class OnDevice {
 public:
  explicit OnDevice(const Device& device) : OnDevice(device.index()) {}
  explicit OnDevice(int index) {
    check(cudaGetDevice(&before_), "asking for the current device");
    if (before_ == index) return;
    check(cudaSetDevice(index), "choosing device cuda:", index);
    changed_ = true;
  }
  ~OnDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

inline cudaStream_t native(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

// True while this thread captures a graph: memory allocated then would be gone at the replay.
inline thread_local bool capturing = false;

}  // namespace halftone::cuda

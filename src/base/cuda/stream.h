// The stream of a CUDA device.
#pragma once
#include <atomic>

#include "base/backend.h"
#include "base/cuda/api.h"

namespace halftone::cuda {

class CudaStream : public StreamState {
 public:
  CudaStream(const Device& device, cudaStream_t stream, bool owned)
      : device_(device), stream_(stream), owned_(owned) {}
  ~CudaStream() override {
    if (owned_) cudaStreamDestroy(stream_);  // ends when its work has
  }
  void synchronize() override;
  void* native() const override { return stream_; }

  // The kernel started last: what a failure found later names.
  std::atomic<const char*> last_kernel{nullptr};

 private:
  Device device_;
  cudaStream_t stream_;
  bool owned_;
};

}  // namespace halftone::cuda

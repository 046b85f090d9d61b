// oneDNN's product beside ours, where its module was built (HALFTONE_ONEDNN).
#pragma once
#include "halftone/tensor.h"

namespace halftone {

class OneDnnPeer {
 public:
  // x [m, k] and weight [n, k], both f32, bf16 or int8. `threads` counts at the first construction.
  OneDnnPeer(const Tensor& x, const Tensor& weight, int copies, int threads);
  ~OneDnnPeer();
  OneDnnPeer(const OneDnnPeer&) = delete;
  OneDnnPeer& operator=(const OneDnnPeer&) = delete;
  // Whether there is such a product to measure.
  explicit operator bool() const { return product_ != nullptr; }
  void run(int turn) const;

 private:
  void* product_ = nullptr;
};

}  // namespace halftone

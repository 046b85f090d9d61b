// Tensors from mapped files to a GPU: through a few page-locked pieces, so that reading the file,
// by all threads, and copying to the device go on at once, and the host holds no second copy.
#pragma once
#include <vector>

#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

class Upload {
 public:
  // Copies in the order of the device's stream; `host` is a team to read with.
  Upload(Stream& device, Stream& host) : device_(device), host_(host) {}
  // With its scales; itself where it is on the device already. The source may go on return.
  Tensor operator()(const Tensor&);

 private:
  void move(const char* from, char* to, int64_t bytes);

  struct Piece {
    Tensor memory;
    Event copied;  // and free again
  };
  Stream &device_, &host_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;
};

}  // namespace halftone

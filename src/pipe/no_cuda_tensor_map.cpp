// The build without CUDA.
#include "halftone/error.h"
#include "pipe/tensor_map_backend.h"

namespace halftone::pipe {

hw::TensorMap make_cuda_tensor_map(const TensorBox&) {
  throw Error(ErrorCode::unsupported,
              "tensor map: this build has no CUDA; build it with the CUDA toolkit");
}

}  // namespace halftone::pipe

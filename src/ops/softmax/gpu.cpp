#include "ops/softmax/gpu.cuh"
#include "hw/image.h"

namespace halftone {

void softmax_gpu(const SoftmaxArgs& args, int64_t rows, Stream& stream) {
  if (rows == 0 || args.columns == 0) return;
  const uint32_t threads = pipe::threads_of_row(args.columns);
  launch(hw::image_of<SoftmaxGpu>("softmax"), pipe::RowThreads::shape(rows, threads),
         SoftmaxGpu::Params{args, rows, threads}, stream);
}

}  // namespace halftone

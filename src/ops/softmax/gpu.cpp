#include "ops/softmax/gpu.cuh"
#include "hw/image.h"

namespace halftone {

void softmax_gpu(const SoftmaxArgs& args, int64_t rows, Stream& stream) {
  if (rows == 0 || args.columns == 0) return;
  const bool whole =
      pipe::are_whole(args.x, args.columns) && pipe::are_whole(args.out, args.columns);
  const uint32_t threads = pipe::threads_of_row(args.columns);
  launch(pipe::image_for<SoftmaxGpu>(args.format, whole, "softmax"),
         pipe::RowThreads::shape(rows, threads), SoftmaxGpuParams{args, rows, threads}, stream);
}

}  // namespace halftone

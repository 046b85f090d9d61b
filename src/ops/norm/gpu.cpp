#include "ops/norm/gpu.cuh"
#include "hw/image.h"

namespace halftone {

void norm_gpu(const NormArgs& args, int64_t rows, Stream& stream) {
  if (rows == 0) return;
  const uint32_t threads = pipe::threads_of_row(args.columns);
  launch(hw::image_of<NormGpu>("norm"), pipe::RowThreads::shape(rows, threads),
         NormGpu::Params{args, rows, threads}, stream);
}

}  // namespace halftone

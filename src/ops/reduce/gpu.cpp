#include "ops/reduce/gpu.cuh"
#include "hw/image.h"

namespace halftone {

void reduce_gpu(const ReduceGpuArgs& args, Stream& stream) {
  if (args.outer == 0 || args.inner == 0) return;
  if (args.inner == 1) {
    const uint32_t threads = pipe::threads_of_row(args.n);
    return launch(hw::image_of<ReduceRowsGpu>("reduce"),
                  pipe::RowThreads::shape(args.outer, threads),
                  ReduceRowsGpu::Params{args, threads}, stream);
  }
  constexpr int64_t kThreads = ReduceColumnsGpu::kThreads;
  const int64_t blocks = (args.outer * args.inner + kThreads - 1) / kThreads;
  launch(
      hw::image_of<ReduceColumnsGpu>("reduce_columns"),
      {.grid = {static_cast<uint32_t>(blocks), 1, 1}, .block = {ReduceColumnsGpu::kThreads, 1, 1}},
      args, stream);
}

}  // namespace halftone

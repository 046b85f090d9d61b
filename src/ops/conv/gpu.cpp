// The convolution kernel of GPUs, host side.
#include "ops/conv/gpu.cuh"
#include "hw/image.h"

namespace halftone {

void conv1d_gpu(const Conv1dArgs& args, int64_t batch, int64_t x_batch, int64_t out_batch,
                Stream& stream) {
  constexpr int64_t kThreads = Conv1dGpu::kThreads;
  const int64_t blocks = (args.out_length + kThreads - 1) / kThreads;
  launch(hw::image_of<Conv1dGpu>("conv1d"),
         {.grid = {static_cast<uint32_t>(blocks), static_cast<uint32_t>(args.outputs * args.groups),
                   static_cast<uint32_t>(batch)},
          .block = {Conv1dGpu::kThreads, 1, 1}},
         Conv1dGpu::Params{args, batch, x_batch, out_batch}, stream);
}

}  // namespace halftone

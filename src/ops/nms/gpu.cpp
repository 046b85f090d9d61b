// Non-maximum suppression on GPUs, host side.
#include "ops/nms/gpu.cuh"
#include "base/device_memory.h"
#include "hw/image.h"

namespace halftone {

void nms_gpu(const NmsGpuArgs& args, Stream& stream) {
  const Device& device = stream.device();
  fill_memory(device, args.candidates, 0, sizeof(uint32_t), &stream);
  constexpr int64_t kThreads = NmsSortGpu::kThreads;
  if (args.n > 0) {
    launch(hw::image_of<NmsSortGpu>("nms_sort"),
           {.grid = {static_cast<uint32_t>((args.n + kThreads - 1) / kThreads), 1, 1},
            .block = {NmsSortGpu::kThreads, 1, 1},
            .shared_bytes = NmsSortGpu::kSharedBytes},
           NmsSortGpu::Params{args, fault_reporter(device)}, stream);
  }
  launch(hw::image_of<NmsWalkGpu>("nms_walk"),
         {.grid = {1, 1, 1}, .block = {NmsWalkGpu::kThreads, 1, 1}}, args, stream);
}

}  // namespace halftone

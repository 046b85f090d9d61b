// The histogram kernel of GPUs, host side.
#include <algorithm>

#include "base/device_memory.h"
#include "hw/image.h"
#include "ops/histogram/gpu.cuh"

namespace halftone {

void histogram_gpu(const HistogramGpuArgs& args, Stream& stream) {
  const Device& device = stream.device();
  fill_memory(device, args.counts, 0, static_cast<size_t>(args.bins) * sizeof(uint64_t), &stream);
  // As many CTAs as are resident at a time, each with enough elements to pay for its bins.
  const int64_t most = properties(device).sm_count * 8;
  const int64_t wanted = std::max(args.elements / (16 * HistogramGpu::kThreads), int64_t{1});
  const uint32_t bytes =
      HistogramGpu::counts_apart(args) ? static_cast<uint32_t>(args.bins) * 4 : 0;
  launch(hw::image_of<HistogramGpu>("histogram"),
         {.grid = {static_cast<uint32_t>(std::min(most, wanted)), 1, 1},
          .block = {HistogramGpu::kThreads, 1, 1},
          .shared_bytes = bytes},
         HistogramGpu::Params{args, fault_reporter(device)}, stream);
}

}  // namespace halftone

// RoPE kernels of GPUs, host side.
#include "ops/rope/gpu.cuh"
#include "hw/image.h"

namespace halftone {

void rope_gpu(const RopeArgs& args, int64_t tokens, Stream& stream) {
  if (tokens == 0 || args.heads == 0 || args.pairs == 0) return;
  launch(RopeHalvesGpu<pipe::Access::f32>::takes(args)
             ? pipe::image_for_whole<RopeHalvesGpu>(args.format, "rope")
             : hw::image_of<RopeGpu>("rope"),
         with_pdl(RopeGpu::shape(args, tokens), stream),
         RopeGpuParams{args, fault_reporter(stream.device())}, stream);
}

}  // namespace halftone

// KV cache append on GPUs, host side.
#include "ops/kv_cache/gpu.cuh"

#include "hw/image.h"

namespace halftone {

void append_gpu(const AppendArgs& args, Stream& stream) {
  if (args.rows == 0) return;
  const int64_t wide =
      args.scales[0] != nullptr && args.recipe.group > 0 ? args.recipe.group : args.shape.head_dim;
  const int64_t groups = args.shape.head_dim / wide;
  uint32_t threads = 1;
  while (int64_t{8} * threads < wide) threads *= 2;
  launch(
      hw::image_of<AppendGpu>("kv_append"),
      with_pdl(pipe::RowThreads::shape(2 * args.rows * args.shape.heads * groups, threads), stream),
      AppendGpu::Params{args, groups, wide, threads}, stream);
}

}  // namespace halftone

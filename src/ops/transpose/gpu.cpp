#include "ops/transpose/gpu.cuh"
#include "base/message.h"
#include "hw/image.h"

namespace halftone {

void permute_gpu(const PermuteArgs& args, int64_t outer, Stream& stream) {
  const int64_t side = PermuteGpu::side(args.element);
  const int64_t down = (args.rows + side - 1) / side, across = (args.columns + side - 1) / side;
  require(outer * down * across < int64_t{1} << 31, "permute: ", outer * down * across,
          " tiles; a GPU takes fewer than 2^31 at a time");
  const PermuteGpu::Params p{args, static_cast<uint32_t>(down), static_cast<uint32_t>(across)};
  launch(hw::image_of<PermuteGpu>("permute"), PermuteGpu::shape(p, outer), p, stream);
}

}  // namespace halftone

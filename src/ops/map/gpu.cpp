#include "ops/map/gpu.cuh"
#include "hw/image.h"

namespace halftone {

void map_gpu(const MapArgs& args, int64_t rows, Stream& stream) {
  MapGpu::Params p{args, rows, 1, 1};
  const int64_t columns = args.extent[args.rank - 1];
  while (p.row_threads < MapGpu::kThreads && int64_t{8} * p.row_threads < columns) {
    p.row_threads *= 2;
  }
  const int64_t piece = int64_t{8} * p.row_threads;
  p.pieces = static_cast<uint32_t>((columns + piece - 1) / piece);
  launch(hw::image_of<MapGpu>("map"), MapGpu::shape(p), p, stream);
}

}  // namespace halftone

#include "ops/map/gpu.cuh"
#include "hw/image.h"

namespace halftone {

namespace {

// Whether an operand's rows are whole pieces of 16 bytes of this format.
bool is_whole(const MapArgs& args, const MapOperand& x, Format format) {
  uintptr_t all = reinterpret_cast<uintptr_t>(x.base);
  for (int d = 0; d < args.rank - 1; ++d) all |= static_cast<uintptr_t>(x.stride[d]);
  return x.format == format && x.stride[args.rank - 1] == pipe::bytes_of(format) && all % 16 == 0;
}

}  // namespace

void map_gpu(const MapArgs& args, int64_t rows, Stream& stream) {
  const int64_t columns = args.extent[args.rank - 1];
  bool whole = columns % 8 == 0 && is_whole(args, args.out, args.out.format);
  for (int k = 0; k < args.operands; ++k) {
    whole = whole && is_whole(args, args.in[k], args.out.format);
  }
  const int64_t each = whole ? MapGpu<pipe::Access::bf16>::kEights * 8 : 8;  // elements a thread
  MapGpuParams p{args, rows, 0, 1};
  constexpr uint32_t kThreads = MapGpu<pipe::Access::any>::kThreads;
  while ((1u << p.row_shift) < kThreads && each << p.row_shift < columns) ++p.row_shift;
  const int64_t piece = each << p.row_shift;
  p.pieces = static_cast<uint32_t>((columns + piece - 1) / piece);
  launch(pipe::image_for<MapGpu>(args.out.format, whole, "map"),
         MapGpu<pipe::Access::any>::shape(p), p, stream);
}

}  // namespace halftone

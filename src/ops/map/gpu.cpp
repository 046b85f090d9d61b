// Elementwise kernels of GPUs, host side: which instance takes a problem, and the launch.
#include "ops/map/gpu.cuh"
#include "hw/image.h"

namespace halftone {

namespace {

// Whether an operand's rows are whole 16-byte pieces of this format.
bool is_whole(const MapArgs& args, const MapOperand& x, Format format) {
  uintptr_t all = reinterpret_cast<uintptr_t>(x.base);
  for (int d = 0; d < args.rank - 1; ++d) all |= static_cast<uintptr_t>(x.stride[d]);
  return x.format == format && x.stride[args.rank - 1] == pipe::bytes_of(format) && all % 16 == 0;
}

template <uint32_t kOperands>
struct Whole {
  template <pipe::Access kAccess>
  using Kernel = MapWholeGpu<kAccess, kOperands>;
};
KernelImage image_of_whole(const MapArgs& args) {
  const Format f = args.out.format;
  if (args.operands == 1) return pipe::image_for_whole<Whole<1>::Kernel>(f, "map");
  if (args.operands == 2) return pipe::image_for_whole<Whole<2>::Kernel>(f, "map");
  return pipe::image_for_whole<Whole<3>::Kernel>(f, "map");
}

}  // namespace

void map_gpu(const MapArgs& args, int64_t rows, Stream& stream) {
  const int64_t columns = args.extent[args.rank - 1];
  bool whole = columns % 8 == 0 && is_whole(args, args.out, args.out.format);
  for (int k = 0; k < args.operands; ++k) {
    whole = whole && is_whole(args, args.in[k], args.out.format);
  }
  const int64_t each =  // elements of a thread
      whole ? MapWholeGpu<pipe::Access::bf16, 1>::kCount : 8;
  MapGpuParams p{args, rows, 0, 1};
  while ((1u << p.row_shift) < MapGpuBlock::kThreads && each << p.row_shift < columns)
    ++p.row_shift;
  const int64_t piece = each << p.row_shift;
  p.pieces = static_cast<uint32_t>((columns + piece - 1) / piece);
  launch(whole ? image_of_whole(args) : hw::image_of<MapGpu>("map"),
         with_pdl(MapGpuBlock::shape(p), stream), p, stream);
}

}  // namespace halftone

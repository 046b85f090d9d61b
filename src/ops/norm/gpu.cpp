// Norm kernels of GPUs, host side: which instance takes a problem, and the launch.
#include "ops/norm/gpu.cuh"
#include "hw/image.h"
#include "ops/norm/whole_rows.h"

namespace halftone {

namespace {

template <pipe::Access kAccess, uint32_t kPieces, bool kTwo = false>
KernelImage image_of_whole(const NormArgs& args) {
  const bool sums = args.residual.base != nullptr;
  if (args.layer) {
    return sums ? hw::image_of<NormWholeGpu<kAccess, true, true, kPieces, kTwo>>("norm")
                : hw::image_of<NormWholeGpu<kAccess, true, false, kPieces, kTwo>>("norm");
  }
  return sums ? hw::image_of<NormWholeGpu<kAccess, false, true, kPieces, kTwo>>("norm")
              : hw::image_of<NormWholeGpu<kAccess, false, false, kPieces, kTwo>>("norm");
}
template <pipe::Access kAccess>
KernelImage image_of_whole(const NormArgs& args, uint32_t pieces, bool two) {
  if constexpr (kAccess != pipe::Access::f32) {
    if (two) return image_of_whole<kAccess, 4, true>(args);
    if (pieces <= 2) return image_of_whole<kAccess, 2>(args);
  }
  return pieces <= 4 ? image_of_whole<kAccess, 4>(args) : image_of_whole<kAccess, 8>(args);
}

}  // namespace

void norm_gpu(const NormArgs& args, int64_t rows, Stream& stream) {
  if (rows == 0) return;
  const WholeRows w = whole_rows(args, rows);
  const bool same_weight = args.weight != nullptr && args.weight_format == args.format &&
                           reinterpret_cast<uintptr_t>(args.weight) % 16 == 0;
  const KernelImage image =
      !w.kept                      ? pipe::image_for<NormGpu>(args.format, w.whole, "norm")
      : args.format == Format::f32 ? image_of_whole<pipe::Access::f32>(args, w.pieces, w.two)
      : args.format == Format::f16 ? image_of_whole<pipe::Access::f16>(args, w.pieces, w.two)
                                   : image_of_whole<pipe::Access::bf16>(args, w.pieces, w.two);
  launch(image, with_pdl(pipe::RowThreads::shape(rows, w.threads), stream),
         NormGpuParams{args, rows, w.threads, w.whole && same_weight}, stream);
}

}  // namespace halftone

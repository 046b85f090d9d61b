#include "ops/norm/gpu.cuh"
#include "hw/image.h"

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
  bool whole = true;
  for (const Rows* x : {&args.x, &args.out, &args.residual, &args.sum}) {
    whole = whole && pipe::are_whole(*x, args.columns);
  }
  uint32_t threads = pipe::threads_of_row(args.columns);
  const uint32_t pieces = pipe::pieces_of_row(args.columns * pipe::bytes_of(args.format), threads);
  bool kept = whole && pieces <= 8;
  for (const void* vector : {args.weight, args.bias}) {
    kept = kept && reinterpret_cast<uintptr_t>(vector) % 16 == 0;
  }
  const bool two = kept && pieces <= 2 && pipe::takes_two(args.format, rows, threads);
  if (two) threads /= 2;
  const bool same_weight = args.weight != nullptr && args.weight_format == args.format &&
                           reinterpret_cast<uintptr_t>(args.weight) % 16 == 0;
  const KernelImage image =
      !kept                        ? pipe::image_for<NormGpu>(args.format, whole, "norm")
      : args.format == Format::f32 ? image_of_whole<pipe::Access::f32>(args, pieces, two)
      : args.format == Format::f16 ? image_of_whole<pipe::Access::f16>(args, pieces, two)
                                   : image_of_whole<pipe::Access::bf16>(args, pieces, two);
  launch(image, taking_turns(pipe::RowThreads::shape(rows, threads), stream),
         NormGpuParams{args, rows, threads, whole && same_weight}, stream);
}

}  // namespace halftone

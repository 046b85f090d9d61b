#include "ops/norm/gpu.cuh"
#include "hw/image.h"

namespace halftone {

void norm_gpu(const NormArgs& args, int64_t rows, Stream& stream) {
  if (rows == 0) return;
  bool whole = true;
  for (const Rows* x : {&args.x, &args.out, &args.residual, &args.sum}) {
    whole = whole && pipe::are_whole(*x, args.columns);
  }
  const uint32_t threads = pipe::threads_of_row(args.columns);
  const bool same_weight = args.weight != nullptr && args.weight_format == args.format &&
                           reinterpret_cast<uintptr_t>(args.weight) % 16 == 0;
  launch(pipe::image_for<NormGpu>(args.format, whole, "norm"),
         pipe::RowThreads::shape(rows, threads),
         NormGpuParams{args, rows, threads, whole && same_weight}, stream);
}

}  // namespace halftone

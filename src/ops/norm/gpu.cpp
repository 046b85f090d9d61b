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
  const KernelImage kernel = pipe::image_for<NormGpu>(args.format, whole, "norm");
  const int64_t resident = properties(stream.device()).sm_count * int64_t{kernel.threads};
  launch(kernel, pipe::RowThreads::resident_shape(rows, threads, resident),
         NormGpuParams{args, rows, threads}, stream);
}

}  // namespace halftone

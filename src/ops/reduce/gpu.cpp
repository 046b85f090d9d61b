// Reduction kernels of GPUs, host side: chunks and launches.
#include "ops/reduce/gpu.cuh"

#include "base/message.h"

namespace halftone {

namespace {

void reduce_rows(const ReduceGpuArgs& args, bool whole, Stream& stream) {
  using Kernel = ReduceRowsGpu<pipe::Access::any>;
  const int64_t elements = args.chunk < args.n ? args.chunk : args.n;
  uint32_t threads = 4;
  while (threads < Kernel::kThreads && threads * Kernel::kThreadElements < elements) threads *= 2;
  launch(pipe::image_for<ReduceRowsGpu>(args.x.codes.format, whole, "reduce"),
         pipe::RowThreads::shape(args.outer * args.chunks, threads),
         ReduceRowsGpu<pipe::Access::any>::Params{args, threads}, stream);
}

void reduce_columns(const ReduceGpuArgs& args, bool whole, Stream& stream) {
  using Kernel = ReduceColumnsGpu<pipe::Access::any>;
  const int64_t stretches = (args.width + Kernel::kStretch - 1) / Kernel::kStretch;
  const int64_t units = args.outer * args.inner * stretches;
  launch(pipe::image_for<ReduceColumnsGpu>(args.x.codes.format, whole, "reduce_columns"),
         {.grid = {static_cast<uint32_t>(units), static_cast<uint32_t>(args.chunks), 1},
          .block = {Kernel::kThreads, 1, 1},
          .shared_bytes = Kernel::kSharedBytes},
         args, stream);
}

}  // namespace

void reduce_gpu(const ReduceGpuArgs& problem, Stream& stream) {
  ReduceGpuArgs args = problem;
  const int64_t results = results_of(args);
  require(results < int64_t{1} << 31, "reduce: ", results,
          " results; a GPU takes fewer than 2^31 at a time");
  if (results == 0) return;
  const bool dot = args.operation == Reduction::dot;
  const bool whole = are_whole(args.x) &&
                     (!dot || (are_whole(args.y) && args.x.codes.format == args.y.codes.format));
  args.pieces = args.along_rows && whole;
  args.along_rows ? reduce_rows(args, whole, stream) : reduce_columns(args, whole, stream);
  if (args.chunks == 1) return;
  launch(hw::image_of<ReduceChunksGpu>("reduce_chunks"),
         {.grid = {static_cast<uint32_t>((results + 31) / 32), 1, 1},
          .block = {ReduceChunksGpu::kThreads, 1, 1},
          .shared_bytes = ReduceChunksGpu::kSharedBytes},
         ReduceChunksGpu::Params{args, results}, stream);
}

}  // namespace halftone

#include "ops/embedding/gpu.cuh"
#include "hw/image.h"

namespace halftone {

void embedding_gpu(const EmbeddingArgs& args, const EmbeddingRange& range, Stream& stream) {
  if (range.tokens == 0 || args.columns == 0) return;
  const uint32_t threads = pipe::threads_of_row(args.columns);
  launch(hw::image_of<EmbeddingGpu>("embedding"), pipe::RowThreads::shape(range.tokens, threads),
         EmbeddingGpu::Params{args, range, fault_reporter(stream.device()), threads}, stream);
}

}  // namespace halftone

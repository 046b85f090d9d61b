// GPU entries of embedding lookup in quantised tables from sm_89 on.
#include "ops/embedding/gpu.cuh"

namespace halftone {
template <pipe::Access kAccess>
using EmbeddingExpand = EmbeddingExpandGpu<kAccess, true>;
}  // namespace halftone

HT_GPU_ENTRIES_OF_WHOLE_ROWS(halftone::EmbeddingExpand)

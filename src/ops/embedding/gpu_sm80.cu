// GPU entries of embedding lookup in quantised tables, before sm_89.
#include "ops/embedding/gpu.cuh"

namespace halftone {
template <pipe::Access kAccess>
using EmbeddingExpand = EmbeddingExpandGpu<kAccess, false>;
}  // namespace halftone

HT_GPU_ENTRIES_OF_WHOLE_ROWS(halftone::EmbeddingExpand)

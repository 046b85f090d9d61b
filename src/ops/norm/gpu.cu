// GPU entries of the norm kernels.
#include "hw/image.h"
#include "ops/norm/gpu.cuh"

#define HT_NORM(format, ...)                                                                      \
  HT_GPU_ENTRY(halftone::NormWholeGpu<halftone::pipe::Access::format, false, false, __VA_ARGS__>) \
  HT_GPU_ENTRY(halftone::NormWholeGpu<halftone::pipe::Access::format, false, true, __VA_ARGS__>)  \
  HT_GPU_ENTRY(halftone::NormWholeGpu<halftone::pipe::Access::format, true, false, __VA_ARGS__>)  \
  HT_GPU_ENTRY(halftone::NormWholeGpu<halftone::pipe::Access::format, true, true, __VA_ARGS__>)
#define HT_NORM_OF_HALVES(format) \
  HT_NORM(format, 2)              \
  HT_NORM(format, 4)              \
  HT_NORM(format, 4, true)        \
  HT_NORM(format, 8)

HT_GPU_ENTRIES_BY_ACCESS(halftone::NormGpu)
HT_NORM(f32, 4)
HT_NORM(f32, 8)
HT_NORM_OF_HALVES(f16)
HT_NORM_OF_HALVES(bf16)

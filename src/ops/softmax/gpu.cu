// GPU entries of the softmax kernels.
#include "hw/image.h"
#include "ops/softmax/gpu_persistent.cuh"

#define HT_SOFTMAX(format, half, share)                                        \
  HT_GPU_ENTRY(halftone::SoftmaxWholeGpu<halftone::pipe::Access::format, half, \
                                         halftone::SoftmaxShare::share>)
#define HT_SOFTMAX_OF(format, half) \
  HT_SOFTMAX(format, half, one)     \
  HT_SOFTMAX(format, half, chunk)   \
  HT_GPU_ENTRY(halftone::SoftmaxPersistentGpu<halftone::pipe::Access::format, half, 2>)

HT_GPU_ENTRIES_BY_ACCESS(halftone::SoftmaxGpu)
HT_SOFTMAX_OF(f32, false)
HT_SOFTMAX_OF(f32, true)
HT_SOFTMAX_OF(f16, false)
HT_SOFTMAX_OF(f16, true)
HT_SOFTMAX_OF(bf16, false)
HT_SOFTMAX_OF(bf16, true)
HT_SOFTMAX(f16, false, two)
HT_SOFTMAX(f16, true, two)
HT_SOFTMAX(bf16, false, two)
HT_SOFTMAX(bf16, true, two)
HT_GPU_ENTRY(halftone::SoftmaxPersistentGpu<halftone::pipe::Access::f16, false, 1>)
HT_GPU_ENTRY(halftone::SoftmaxPersistentGpu<halftone::pipe::Access::f16, true, 1>)
HT_GPU_ENTRY(halftone::SoftmaxPersistentGpu<halftone::pipe::Access::bf16, false, 1>)
HT_GPU_ENTRY(halftone::SoftmaxPersistentGpu<halftone::pipe::Access::bf16, true, 1>)

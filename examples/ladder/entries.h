// All steps, and their entries for the GPU.
#pragma once
#include "hw/entry.h"
#include "step1_naive.h"
#include "step2_shared_tiles.h"
#include "step3_mma_sync.h"
#include "step4_swizzle.h"
#include "step5_cp_async.h"
#include "step6_tma_ring.h"
#include "step7_wgmma.h"
#include "step8_warp_roles.h"
#include "step9_persistent.h"

namespace halftone::ladder {

// The __global__ function of a step: defined in steps.cu, null in a build without CUDA.
#if defined(LADDER_GPU)
template <class Kernel>
const void* gpu_entry_of();
#else
template <class Kernel>
const void* gpu_entry_of() {
  return nullptr;
}
#endif

}  // namespace halftone::ladder

// Feature: tcgen05
#include "hw/mma/tcgen05_alloc.h"
#include "hw/mma/tcgen05_cp.h"
#include "hw/mma/tcgen05_sync.h"
#include "instantiate.h"

namespace halftone::hw {

using tile::TensorCopy;

template <CtaGroup kGroup, TensorCopy... kShapes>
__device__ void copies(TensorAddress d, tile::Tcgen05Descriptor from) {
  (tcgen05_cp<kShapes, kGroup>(d, from), ...);
  (tcgen05_cp<kShapes, kGroup, TensorUnpack::b6x16_p32>(d, from), ...);
  (tcgen05_cp<kShapes, kGroup, TensorUnpack::b4x16_p64>(d, from), ...);
}

template <CtaGroup kGroup>
__device__ void of_group(const Operands& o, TensorAddress d, tile::Tcgen05Descriptor from) {
  tcgen05_alloc<kGroup>(o.shared, o.a);
  copies<kGroup, TensorCopy::s128x256b, TensorCopy::s128x128b, TensorCopy::s64x128b_02_13,
         TensorCopy::s64x128b_01_23, TensorCopy::s32x128b_warpx4, TensorCopy::s4x256b>(d, from);
  tcgen05_commit<kGroup>(o.barrier);
  tcgen05_commit_multicast<kGroup>(o.barrier, static_cast<uint16_t>(o.b));
  tcgen05_shift_down<kGroup>(d);
  tcgen05_relinquish_alloc_permit<kGroup>();
  tcgen05_dealloc<kGroup>(d, o.a);
}

// An instruction is for one block or for two throughout a kernel.
__global__ void of_one(Operands o, TensorAddress d, tile::Tcgen05Descriptor from) {
  of_group<CtaGroup::one>(o, d, from);
  tcgen05_fence_before_thread_sync();
  tcgen05_fence_after_thread_sync();
}
__global__ void of_two(Operands o, TensorAddress d, tile::Tcgen05Descriptor from) {
  of_group<CtaGroup::two>(o, d, from);
}

}  // namespace halftone::hw

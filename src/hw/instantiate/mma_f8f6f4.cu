// Feature: mma_f8f6f4
#include "hw/mma/mma_block_scale.h"

#include "instantiate.h"

namespace halftone::hw {

template <Type kA, Type... kB>
__device__ void with_every_b(Operands& o) {
  (mma_f8f6f4<kA, kB>(o.f4, o.r4, o.r2, o.f4), ...);
  (mma_f8f6f4<kA, kB>(o.r2, o.r4, o.r2, o.r2), ...);
}
template <Type... kTypes>
__device__ void every_pair(Operands& o) {
  (with_every_b<kTypes, Type::e4m3, Type::e5m2, Type::e2m3, Type::e3m2, Type::e2m1>(o), ...);
}

__global__ void instantiate_mma_f8f6f4(Operands o) {
  every_pair<Type::e4m3, Type::e5m2, Type::e2m3, Type::e3m2, Type::e2m1>(o);
  use(o, o.f4);
  use(o, o.r2);
}

}  // namespace halftone::hw

// Feature: mma_fp8
#include "hw/mma/mma.h"
#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_mma_fp8(Operands o) {
  mma_m16n8k32<Type::e4m3>(o.f4, o.r4, o.r2, o.f4);
  mma_m16n8k32<Type::e5m2>(o.f4, o.r4, o.r2, o.f4);
  mma_m16n8k32<Type::e4m3, Type::e5m2>(o.f4, o.r4, o.r2, o.f4);
  mma_m16n8k32<Type::e5m2, Type::e4m3>(o.f4, o.r4, o.r2, o.f4);
  use(o, o.f4);
}

}  // namespace halftone::hw

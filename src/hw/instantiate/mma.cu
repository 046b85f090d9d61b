#include "hw/mma/mma.h"

#include "instantiate.h"

namespace halftone::hw {

template <Type kA, Type kB>
__device__ void of_bytes(Operands& o) {
  mma_m16n8k32<kA, kB>(o.s4, o.r4, o.r2, o.s4);
  mma_m16n8k32<kA, kB, true>(o.s4, o.r4, o.r2, o.s4);
}

__global__ void instantiate_mma(Operands o) {
  mma_m16n8k16<Type::bf16>(o.f4, o.r4, o.r2, o.f4);
  mma_m16n8k16<Type::f16>(o.f4, o.r4, o.r2, o.f4);
  mma_m16n8k16<Type::f16>(o.r2, o.r4, o.r2, o.r2);
  mma_m16n8k8<Type::bf16>(o.f4, o.r2, o.r1, o.f4);
  mma_m16n8k8<Type::f16>(o.f4, o.r2, o.r1, o.f4);
  mma_m16n8k8<Type::tf32>(o.f4, o.r4, o.r2, o.f4);
  of_bytes<Type::s8, Type::s8>(o);
  of_bytes<Type::s8, Type::u8>(o);
  of_bytes<Type::u8, Type::s8>(o);
  of_bytes<Type::u8, Type::u8>(o);
  mma_m16n8k64<Type::s4>(o.s4, o.r4, o.r2, o.s4);
  mma_m16n8k64<Type::u4>(o.s4, o.r4, o.r2, o.s4);
  mma_m16n8k64<Type::s4, Type::u4>(o.s4, o.r4, o.r2, o.s4);
  mma_m16n8k64<Type::u4, Type::s4>(o.s4, o.r4, o.r2, o.s4);
  use(o, o.f4);
  use(o, o.s4);
  use(o, o.r2);
}

}  // namespace halftone::hw

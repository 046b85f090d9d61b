// Feature: mma_block_scale
#include "hw/mma/mma_block_scale.h"

#include "instantiate.h"

namespace halftone::hw {

template <Type kA, class AtA, class AtB>
__device__ void with_every_b(Operands& o, AtA at_a, AtB at_b) {
  mma_mxf8f6f4<kA, Type::e4m3>(o.f4, o.r4, o.r2, o.f4, o.a, o.b, at_a, at_b);
  mma_mxf8f6f4<kA, Type::e5m2>(o.f4, o.r4, o.r2, o.f4, o.a, o.b, at_a, at_b);
  mma_mxf8f6f4<kA, Type::e2m3>(o.f4, o.r4, o.r2, o.f4, o.a, o.b, at_a, at_b);
  mma_mxf8f6f4<kA, Type::e3m2>(o.f4, o.r4, o.r2, o.f4, o.a, o.b, at_a, at_b);
  mma_mxf8f6f4<kA, Type::e2m1>(o.f4, o.r4, o.r2, o.f4, o.a, o.b, at_a, at_b);
}

template <int kByteA, int kThreadA, int kByteB, int kThreadB>
__device__ void of_fp4(Operands& o) {
  constexpr ScaleAt<kByteA, kThreadA> at_a;
  constexpr ScaleAt<kByteB, kThreadB> at_b;
  mma_mxf4(o.f4, o.r4, o.r2, o.f4, o.a, o.b, at_a, at_b);
  mma_mxf4nvf4<Type::ue8m0>(o.f4, o.r4, o.r2, o.f4, o.a, o.b, at_a, at_b);
}

__global__ void instantiate_mma_block_scale(Operands o) {
  with_every_b<Type::e4m3>(o, ScaleAt<0, 0>(), ScaleAt<3, 3>());
  with_every_b<Type::e5m2>(o, ScaleAt<1, 1>(), ScaleAt<2, 2>());
  with_every_b<Type::e2m3>(o, ScaleAt<2, 0>(), ScaleAt<1, 1>());
  with_every_b<Type::e3m2>(o, ScaleAt<3, 1>(), ScaleAt<0, 0>());
  with_every_b<Type::e2m1>(o, ScaleAt<0, 1>(), ScaleAt<0, 3>());
  of_fp4<0, 0, 0, 0>(o);
  of_fp4<2, 1, 2, 3>(o);
  mma_mxf4nvf4<Type::ue4m3>(o.f4, o.r4, o.r2, o.f4, o.a, o.b, ScaleAt<0, 0>(), ScaleAt<0, 0>());
  mma_mxf4nvf4<Type::ue4m3>(o.f4, o.r4, o.r2, o.f4, o.a, o.b, ScaleAt<0, 1>(), ScaleAt<0, 3>());
  use(o, o.f4);
}

}  // namespace halftone::hw

// Feature: f32x2
#include "hw/f32x2.h"

#include "instantiate.h"

namespace halftone::hw {

__device__ void use_pair(const Operands& o, F32x2 pair) {
  use(o, pair.x);
  use(o, pair.y);
}

template <Rounding kRounding, Subnormals kSubnormals>
__device__ void rounded(const Operands& o) {
  const F32x2 a{o.f, o.g}, b{o.g, o.h}, c{o.h, o.f};
  use_pair(o, add_f32x2<kRounding, kSubnormals>(a, b));
  use_pair(o, sub_f32x2<kRounding, kSubnormals>(a, b));
  use_pair(o, mul_f32x2<kRounding, kSubnormals>(a, b));
  use_pair(o, fma_f32x2<kRounding, kSubnormals>(a, b, c));
}
template <Rounding kRounding>
__device__ void both(const Operands& o) {
  rounded<kRounding, Subnormals::kept>(o);
  rounded<kRounding, Subnormals::ftz>(o);
}

__global__ void instantiate_f32x2(Operands o) {
  both<Rounding::rn>(o);
  both<Rounding::rz>(o);
  both<Rounding::rm>(o);
  both<Rounding::rp>(o);
}

}  // namespace halftone::hw

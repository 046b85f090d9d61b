#include "hw/convert/convert_integer.h"

#include "instantiate.h"

namespace halftone::hw {

template <IntegerRounding kRounding>
__device__ void rounded(const Operands& o) {
  use(o, cvt_s32<kRounding>(o.f));
  use(o, cvt_u32<kRounding>(o.f));
  use(o, cvt_s8<kRounding>(o.f));
  use(o, cvt_u8<kRounding>(o.f));
}

__global__ void instantiate_convert_integer(Operands o) {
  rounded<IntegerRounding::rni>(o);
  rounded<IntegerRounding::rzi>(o);
  rounded<IntegerRounding::rmi>(o);
  rounded<IntegerRounding::rpi>(o);
  use(o, cvt_f32(o.i));
  use(o, cvt_f32(o.a));
  use(o, cvt_pack_s8(o.i, o.i, o.a));
}

}  // namespace halftone::hw

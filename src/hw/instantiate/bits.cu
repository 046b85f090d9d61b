#include "hw/bits.h"

#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_bits(Operands o) {
  use(o, prmt(o.a, o.b, o.c));
  use(o, lop3<(kLop3A & kLop3B) ^ kLop3C>(o.a, o.b, o.c));
  use(o, shf_left_wrap(o.a, o.b, o.c));
  use(o, shf_right_wrap(o.a, o.b, o.c));
  use(o, shf_left_clamp(o.a, o.b, o.c));
  use(o, shf_right_clamp(o.a, o.b, o.c));
  use(o, bfe(o.a, o.b, o.c));
  use(o, bfe(o.i, o.b, o.c));
  use(o, bfi(o.a, o.b, o.c, o.a));
  use(o, popc(o.a));
  use(o, clz(o.a));
  use(o, brev(o.a));
  use(o, bfind(o.a));
  use(o, dp4a(o.a, o.b, o.i));
  use(o, dp4a_u8_s8(o.a, o.b, o.i));
}

}  // namespace halftone::hw

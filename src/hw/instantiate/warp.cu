#include "hw/warp.h"

#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_warp(Operands o) {
  warp_sync(o.a);
  use(o, shuffle(o.a, o.b, o.c));
  use(o, shuffle_xor(o.a, o.b, o.c));
  use(o, shuffle_up(o.f, o.b, o.c));
  use(o, shuffle_down(o.i, o.b, o.c, o.a));
}

}  // namespace halftone::hw

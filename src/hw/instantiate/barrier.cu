#include "hw/barrier.h"

#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_barrier(Operands o) {
  barrier_sync();
  barrier_sync(o.a, o.b);
  barrier_arrive(o.a, o.b);
  use(o, barrier_count(o.a, o.b, o.flag));
  use(o, barrier_all(o.a, o.b, o.flag));
  use(o, barrier_any(o.a, o.b, o.flag));
}

}  // namespace halftone::hw

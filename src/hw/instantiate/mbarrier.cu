#include "hw/mbarrier.h"

#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_mbarrier(Operands o) {
  mbarrier_init(o.barrier, o.a);
  mbarrier_arrive(o.barrier);
  mbarrier_arrive_drop(o.barrier);
  use(o, mbarrier_test_wait(o.barrier, o.a));
  mbarrier_spin_wait(o.barrier, o.a);
  mbarrier_inval(o.barrier);
}

}  // namespace halftone::hw

// Feature: mbarrier_tx
#include "hw/mbarrier.h"
#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_mbarrier(Operands o) {
  mbarrier_arrive(o.barrier, o.a);
  mbarrier_arrive_expect_tx(o.barrier, o.a);
  mbarrier_expect_tx(o.barrier, o.a);
  mbarrier_complete_tx(o.barrier, o.a);
  mbarrier_arrive_cluster(o.remote, o.a);
  mbarrier_arrive_cluster_relaxed(o.remote, o.a);
  mbarrier_arrive_expect_tx_cluster(o.remote, o.a);
  use(o, mbarrier_test_wait<Scope::cluster>(o.barrier, o.a));
  use(o, mbarrier_try_wait(o.barrier, o.a));
  use(o, mbarrier_try_wait<Scope::cluster>(o.barrier, o.a));
  mbarrier_wait(o.barrier, o.a);
  mbarrier_wait<Scope::cluster>(o.barrier, o.a);
}

}  // namespace halftone::hw

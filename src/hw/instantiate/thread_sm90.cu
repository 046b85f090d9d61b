// Feature: mbarrier_tx
#include "hw/thread.h"
#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_thread(Operands o) {
  use(o, cluster_rank() + cluster_size() + block_in_cluster().y + cluster_index().x);
  use(o, elect_one(o.a));
}

}  // namespace halftone::hw

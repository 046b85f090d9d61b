// Feature: mbarrier_tx
#include "hw/cluster.h"
#include "instantiate.h"

namespace halftone::hw {

template <class T>
__device__ void remote_access(const Operands& o) {
  store_cluster(o.remote, load_cluster<T>(o.remote));
}

__global__ void instantiate_cluster(Operands o) {
  cluster_arrive();
  cluster_wait();
  cluster_arrive_relaxed();
  cluster_wait();
  use(o, map_shared_rank(o.shared, o.a));
  use(o, rank_of(o.remote));
  remote_access<uint8_t>(o);
  remote_access<uint16_t>(o);
  remote_access<float>(o);
  remote_access<uint64_t>(o);
  remote_access<Words4>(o);
  st_async(o.remote, o.a, o.remote);
  st_async(o.remote, o.wide, o.remote);
  st_async(o.remote, Words4{{o.a, o.b, o.c, o.a}}, o.remote);
}

}  // namespace halftone::hw

// Feature: mbarrier_tx
#include "hw/fence.h"
#include "instantiate.h"

namespace halftone::hw {

template <Scope kScope>
__device__ void of_scope(const Operands& o) {
  fence_acq_rel<kScope>();
  fence_sc<kScope>();
  fence_tensormap_release<kScope>();
  fence_tensormap_acquire<kScope>(o.memory);
}

__global__ void instantiate_fence(Operands o) {
  fence_proxy_async();
  fence_proxy_async_shared();
  fence_proxy_async_global();
  fence_mbarrier_init();
  of_scope<Scope::cta>(o);
  of_scope<Scope::cluster>(o);
  of_scope<Scope::gpu>(o);
  of_scope<Scope::sys>(o);
}

}  // namespace halftone::hw

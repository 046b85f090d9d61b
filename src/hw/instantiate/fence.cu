#include "hw/fence.h"

#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_fence() {
  fence_acq_rel<Scope::cta>();
  fence_acq_rel<Scope::gpu>();
  fence_acq_rel<Scope::sys>();
  fence_sc<Scope::cta>();
  fence_sc<Scope::gpu>();
  fence_sc<Scope::sys>();
}

}  // namespace halftone::hw

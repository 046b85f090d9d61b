// Feature: mbarrier_tx
#include "hw/mufu.h"
#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_mufu(Operands o) {
  use(o, ex2_approx_ftz_bf16x2(o.a));
  use(o, tanh_approx_bf16x2(o.a));
}

}  // namespace halftone::hw

#include "hw/mufu.h"

#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_mufu(Operands o) {
  use(o, ex2_approx(o.f) + ex2_approx_ftz(o.g));
  use(o, lg2_approx(o.f) + lg2_approx_ftz(o.g));
  use(o, rcp_approx(o.f) + rcp_approx_ftz(o.g));
  use(o, rsqrt_approx(o.f) + rsqrt_approx_ftz(o.g));
  use(o, sqrt_approx(o.f) + sqrt_approx_ftz(o.g));
  use(o, sin_approx(o.f) + sin_approx_ftz(o.g));
  use(o, cos_approx(o.f) + cos_approx_ftz(o.g));
  use(o, tanh_approx(o.f));
  use(o, ex2_approx_f16x2(o.a));
  use(o, tanh_approx_f16x2(o.a));
}

}  // namespace halftone::hw

#include "hw/math.h"

#include "instantiate.h"

namespace halftone::hw {

template <Rounding kRounding>
__device__ void rounded(const Operands& o) {
  use(o, add<kRounding>(o.f, o.g));
  use(o, mul<kRounding>(o.f, o.g));
  use(o, fma<kRounding>(o.f, o.g, o.h));
}

__global__ void instantiate_math(Operands o) {
  rounded<Rounding::rn>(o);
  rounded<Rounding::rz>(o);
  rounded<Rounding::rm>(o);
  rounded<Rounding::rp>(o);
  use(o, min(o.f, o.g));
  use(o, min_nan(o.f, o.g));
  use(o, max(o.f, o.g));
  use(o, max_nan(o.f, o.g));
}

}  // namespace halftone::hw

// Feature: mbarrier_tx
#include "hw/convert/convert.h"
#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_convert(Operands o) {
  use(o, cvt_tf32<Rounding::rn, false>(o.f));
  use(o, cvt_tf32<Rounding::rn, true>(o.f));
  use(o, cvt_tf32<Rounding::rz, false>(o.f));
  use(o, cvt_tf32<Rounding::rz, true>(o.f));
}

}  // namespace halftone::hw

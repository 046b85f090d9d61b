#include "hw/mma/ldmatrix.h"

#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_ldmatrix(Operands o) {
  ldmatrix(o.r1, o.shared);
  ldmatrix(o.r2, o.shared);
  ldmatrix(o.r4, o.shared);
  ldmatrix_trans(o.r1, o.shared);
  ldmatrix_trans(o.r2, o.shared);
  ldmatrix_trans(o.r4, o.shared);
  use(o, o.r4);
}

}  // namespace halftone::hw

// Feature: stmatrix
#include "hw/mma/stmatrix.h"
#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_stmatrix(Operands o) {
  stmatrix(o.shared, o.r1);
  stmatrix(o.shared, o.r2);
  stmatrix(o.shared, o.r4);
  stmatrix_trans(o.shared, o.r1);
  stmatrix_trans(o.shared, o.r2);
  stmatrix_trans(o.shared, o.r4);
}

}  // namespace halftone::hw

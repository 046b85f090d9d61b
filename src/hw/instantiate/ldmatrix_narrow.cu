// Feature: ldmatrix_narrow
#include "hw/mma/ldmatrix_narrow.h"

#include "instantiate.h"

namespace halftone::hw {

template <RowFormat kFormat>
__device__ void of_format(Operands& o) {
  ldmatrix_m8n16<kFormat>(o.r1, o.shared);
  ldmatrix_m8n16<kFormat>(o.r2, o.shared);
  ldmatrix_m8n16<kFormat>(o.r4, o.shared);
  ldmatrix_m16n16_trans<kFormat>(o.r2, o.shared);
  ldmatrix_m16n16_trans<kFormat>(o.r4, o.shared);
}

__global__ void instantiate_ldmatrix_narrow(Operands o) {
  of_format<RowFormat::b6x16_p32>(o);
  of_format<RowFormat::b4x16_p64>(o);
  ldmatrix_m16n16_trans<RowFormat::b8>(o.r2, o.shared);
  ldmatrix_m16n16_trans<RowFormat::b8>(o.r4, o.shared);
  stmatrix_m16n8_trans(o.shared, o.r1);
  stmatrix_m16n8_trans(o.shared, o.r2);
  stmatrix_m16n8_trans(o.shared, o.r4);
  use(o, o.r4);
}

}  // namespace halftone::hw

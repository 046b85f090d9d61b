// Feature: tma_gather4
#include "hw/copy/tma_sm100.h"
#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_gather4(Operands o, const __grid_constant__ TensorMap map) {
  const int32_t at[5] = {o.i, o.i, o.i, o.i, o.i};
  tensor_load_gather4(o.shared, &map, at, o.barrier);
  tensor_load_gather4(o.shared, &map, at, o.barrier, o.policy);
}

}  // namespace halftone::hw

// Feature: mbarrier_tx
#include "hw/pair.h"
#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_pair(Operands o) {
  use(o, add_pair<Type::bf16x2>(o.a, o.b));
  use(o, sub_pair<Type::bf16x2>(o.a, o.b));
  use(o, mul_pair<Type::bf16x2>(o.a, o.b));
}

}  // namespace halftone::hw

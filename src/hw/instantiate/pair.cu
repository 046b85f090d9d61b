#include "hw/pair.h"

#include "instantiate.h"

namespace halftone::hw {

template <Type kType>
__device__ void of_type(const Operands& o) {
  use(o, fma_pair<kType>(o.a, o.b, o.c));
  use(o, fma_relu_pair<kType>(o.a, o.b, o.c));
  use(o, min_pair<kType>(o.a, o.b));
  use(o, max_pair<kType>(o.a, o.b));
  use(o, max_nan_pair<kType>(o.a, o.b));
}

__global__ void instantiate_pair(Operands o) {
  use(o, add_pair<Type::f16x2>(o.a, o.b));
  use(o, sub_pair<Type::f16x2>(o.a, o.b));
  use(o, mul_pair<Type::f16x2>(o.a, o.b));
  of_type<Type::f16x2>(o);
  of_type<Type::bf16x2>(o);
}

}  // namespace halftone::hw

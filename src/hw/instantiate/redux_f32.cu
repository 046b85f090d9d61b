// Feature: redux_f32
#include "hw/redux_f32.h"

#include "instantiate.h"

namespace halftone::hw {

template <Magnitude kMagnitude, NanWins kNan>
__device__ void form(const Operands& o) {
  use(o, redux_max_f32<kMagnitude, kNan>(o.f, o.a));
  use(o, redux_min_f32<kMagnitude, kNan>(o.f, o.a));
}

__global__ void instantiate_redux_f32(Operands o) {
  form<Magnitude::value, NanWins::no>(o);
  form<Magnitude::value, NanWins::yes>(o);
  form<Magnitude::abs, NanWins::no>(o);
  form<Magnitude::abs, NanWins::yes>(o);
}

}  // namespace halftone::hw

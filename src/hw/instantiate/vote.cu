#include "hw/vote.h"

#include "instantiate.h"

namespace halftone::hw {

template <class T>
__device__ void reductions(const Operands& o, T value) {
  use(o, redux<Reduction::add>(value));
  use(o, redux<Reduction::min>(value));
  use(o, redux<Reduction::max>(value));
}

__global__ void instantiate_vote(Operands o) {
  use(o, vote_ballot(o.flag, o.a));
  use(o, vote_any(o.flag));
  use(o, vote_all(o.flag));
  use(o, vote_uniform(o.flag));
  use(o, match_any(o.a));
  use(o, match_all(o.a));
  reductions(o, o.a);
  reductions(o, o.i);
  use(o, redux<Reduction::and_>(o.a));
  use(o, redux<Reduction::or_>(o.a));
  use(o, redux<Reduction::xor_>(o.a));
}

}  // namespace halftone::hw

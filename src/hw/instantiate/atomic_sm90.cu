// Feature: mbarrier_tx
#include "hw/atomic.h"
#include "instantiate.h"

namespace halftone::hw {

template <Scope kScope>
__device__ void vectors(const Operands& o) {
  const Words4 words{{o.a, o.b, o.c, o.a}};
  reduce_add_vector_global<Type::f32, kScope>(o.memory, words);
  reduce_add_vector_global<Type::f16x2, kScope>(o.memory, words);
  reduce_add_vector_global<Type::bf16x2, kScope>(o.memory, words);
}

__global__ void instantiate_atomic(Operands o) {
  use(o, atomic_add_pair_global<Type::bf16x2>(o.memory, o.a));
  use(o, atomic_global<Atomic::add, Order::acq_rel, Scope::cluster>(o.memory, o.a));
  vectors<Scope::gpu>(o);
  vectors<Scope::sys>(o);
}

}  // namespace halftone::hw

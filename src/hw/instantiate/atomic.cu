#include "hw/atomic.h"

#include "instantiate.h"

namespace halftone::hw {

template <Atomic kOperation, class T>
__device__ void operation(const Operands& o, T value) {
  use(o, atomic_shared<kOperation>(o.shared, value));
  use(o, atomic_global<kOperation>(reinterpret_cast<T*>(o.memory), value));
  if constexpr (kOperation != Atomic::exch) {
    reduce_shared<kOperation>(o.shared, value);
    reduce_global<kOperation>(reinterpret_cast<T*>(o.memory), value);
  }
}
template <Atomic... kOperations, class T>
__device__ void operations(const Operands& o, T value) {
  (operation<kOperations>(o, value), ...);
}

template <Order kOrder, Scope kScope>
__device__ void ordered(const Operands& o) {
  use(o, atomic_shared<Atomic::add, kOrder, kScope>(o.shared, o.a));
  use(o, atomic_global<Atomic::add, kOrder, kScope>(o.memory, o.a));
  use(o, atomic_cas_shared<kOrder, kScope>(o.shared, o.a, o.b));
  use(o, atomic_cas_global<kOrder, kScope>(o.memory, o.a, o.b));
}
template <Scope kScope>
__device__ void every_order(const Operands& o) {
  ordered<Order::relaxed, kScope>(o);
  ordered<Order::acquire, kScope>(o);
  ordered<Order::release, kScope>(o);
  ordered<Order::acq_rel, kScope>(o);
  reduce_shared<Atomic::add, Order::release, kScope>(o.shared, o.a);
  reduce_global<Atomic::add, Order::release, kScope>(o.memory, o.a);
}

__global__ void instantiate_atomic(Operands o) {
  using enum Atomic;
  const auto wide = static_cast<int64_t>(o.wide);
  operations<add, min, max, inc, dec, and_, or_, xor_, exch>(o, o.a);
  operations<add, min, max, and_, or_, xor_, exch>(o, o.i);
  operations<add, min, max, and_, or_, xor_, exch>(o, o.wide);
  operations<add, min, max, and_, or_, xor_, exch>(o, wide);
  operations<add, exch>(o, o.f);
  operations<add, exch>(o, static_cast<double>(o.f));
  use(o, atomic_add_pair_global<Type::f16x2>(o.memory, o.a));
  use(o, atomic_cas_shared(o.shared, o.wide, o.wide));
  use(o, atomic_cas_global(&o.wide, o.wide, o.wide));
  every_order<Scope::cta>(o);
  every_order<Scope::gpu>(o);
  every_order<Scope::sys>(o);
}

}  // namespace halftone::hw

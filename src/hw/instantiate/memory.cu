#include "hw/memory.h"

#include "instantiate.h"

namespace halftone::hw {

template <class T>
__device__ void every_access(const Operands& o) {
  auto* global = reinterpret_cast<T*>(o.memory);
  store_shared(o.shared, load_shared<T>(o.shared));
  store_shared_ordered<Order::volatile_access>(
      o.shared, load_shared_ordered<T, Order::volatile_access>(o.shared));
  store_global(global, load_global(global));
  store_global(global, load_global<T, Cache::global>(global, o.policy), o.policy);
  store_global<Cache::global>(global, load_global<T, Cache::global>(global));
  store_global<Cache::streaming>(global, load_global<T, Cache::streaming>(global));
  store_global<Cache::write_through>(global, load_global<T, Cache::last_use>(global));
  store_global<Cache::no_allocate>(global, load_global<T, Cache::no_allocate>(global));
  store_global<Cache::evict_first>(global, load_global<T, Cache::evict_first>(global));
  store_global<Cache::evict_last>(global, load_global<T, Cache::evict_last>(global));
  store_global(global, load_global<T, Cache::evict_unchanged>(global));
  store_global(global, load_global<T, Cache::read_only>(global));
  store_global(global, load_global<T, Cache::read_only_no_allocate>(global));
  store_global(global, load_global<T, Cache::read_only_no_allocate>(global, o.policy));
}

template <class T, Scope kScope>
__device__ void every_order(const Operands& o) {
  auto* global = reinterpret_cast<T*>(o.memory);
  store_shared_ordered<Order::relaxed, kScope>(
      o.shared, load_shared_ordered<T, Order::relaxed, kScope>(o.shared));
  store_shared_ordered<Order::release, kScope>(
      o.shared, load_shared_ordered<T, Order::acquire, kScope>(o.shared));
  store_global_ordered<Order::relaxed, kScope>(
      global, load_global_ordered<T, Order::relaxed, kScope>(global));
  store_global_ordered<Order::release, kScope>(
      global, load_global_ordered<T, Order::acquire, kScope>(global));
}

template <class T>
__device__ void every_scope(const Operands& o) {
  every_order<T, Scope::cta>(o);
  every_order<T, Scope::gpu>(o);
  every_order<T, Scope::sys>(o);
}

__global__ void instantiate_memory(Operands o) {
  every_access<uint8_t>(o);
  every_access<uint16_t>(o);
  every_access<float>(o);
  every_access<uint64_t>(o);
  every_access<Words4>(o);
  every_scope<uint32_t>(o);
  every_scope<uint64_t>(o);
  prefetch_global<CacheLevel::l1>(o.memory);
  prefetch_global<CacheLevel::l2>(o.memory);
  prefetch_global<CacheLevel::l2_evict_last>(o.memory);
  prefetch_global<CacheLevel::l2_evict_normal>(o.memory);
  use(o, make_policy<Evict::first>(o.f));
  use(o, make_policy<Evict::normal>(o.f));
  use(o, make_policy<Evict::last>(o.f));
  use(o, make_policy<Evict::unchanged>(o.f));
}

}  // namespace halftone::hw

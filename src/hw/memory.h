// Loads and stores of shared and global memory, 1 to 16 bytes, and what steers the caches.
#pragma once
#include "hw/access.h"
#include "hw/address.h"

namespace halftone::hw {

// Where an access to global memory may be cached.
enum class Cache : uint8_t {
  all,              // L1 and L2
  global,           // L2 only
  streaming,        // likely used once: first to be evicted
  last_use,         // loads: not needed again
  no_allocate,      // no new line in L1
  evict_first,      // the order of eviction from L1
  evict_last,       //
  evict_unchanged,  // loads
  read_only,        // loads: nothing writes the data while the kernel runs
  read_only_no_allocate,
  write_through,  // stores: on to system memory
};

template <Cache kCache>
constexpr auto load_name() {
  if constexpr (kCache == Cache::all) return Text("ld.global");
  if constexpr (kCache == Cache::global) return Text("ld.global.cg");
  if constexpr (kCache == Cache::streaming) return Text("ld.global.cs");
  if constexpr (kCache == Cache::last_use) return Text("ld.global.lu");
  if constexpr (kCache == Cache::no_allocate) return Text("ld.global.L1::no_allocate");
  if constexpr (kCache == Cache::evict_first) return Text("ld.global.L1::evict_first");
  if constexpr (kCache == Cache::evict_last) return Text("ld.global.L1::evict_last");
  if constexpr (kCache == Cache::evict_unchanged) return Text("ld.global.L1::evict_unchanged");
  if constexpr (kCache == Cache::read_only) return Text("ld.global.nc");
  if constexpr (kCache == Cache::read_only_no_allocate) {
    return Text("ld.global.nc.L1::no_allocate");
  }
}
template <Cache kCache>
constexpr auto store_name() {
  if constexpr (kCache == Cache::all) return Text("st.global");
  if constexpr (kCache == Cache::global) return Text("st.global.cg");
  if constexpr (kCache == Cache::streaming) return Text("st.global.cs");
  if constexpr (kCache == Cache::no_allocate) return Text("st.global.L1::no_allocate");
  if constexpr (kCache == Cache::evict_first) return Text("st.global.L1::evict_first");
  if constexpr (kCache == Cache::evict_last) return Text("st.global.L1::evict_last");
  if constexpr (kCache == Cache::write_through) return Text("st.global.wt");
}

template <class T>
HT_DEVICE T load_shared(SharedAddress from, Site site = Site::current()) {
  T value{};
#if HT_GPU
  value = load_form<T, "ld.shared">(from.value);
#elif !defined(__CUDACC__)
  value = model::load_shared<T>(from.value, "ld.shared", site);
#endif
  return value;
}

template <class T>
HT_DEVICE void store_shared(SharedAddress to, const T& value, Site site = Site::current()) {
#if HT_GPU
  store_form<T, "st.shared">(to.value, value);
#elif !defined(__CUDACC__)
  model::store_shared(to.value, value, "st.shared", site);
#endif
}

// With an order: volatile_access, relaxed or acquire. Both threads must be in the scope.
template <class T, Order kOrder, Scope kScope = Scope::cta>
HT_DEVICE T load_shared_ordered(SharedAddress from, Site site = Site::current()) {
  static_assert(kOrder != Order::release && kOrder != Order::acq_rel, "a load cannot release");
  T value{};
#if HT_GPU
  value = load_form<T, Text("ld") + OrderName<kOrder, kScope>::text + ".shared">(from.value);
#elif !defined(__CUDACC__)
  sim::read_shared_ordered(sim::self(), from.value, &value, sizeof(T), model::simulated(kOrder),
                           model::simulated(kScope), site);
#endif
  return value;
}

template <Order kOrder, Scope kScope = Scope::cta, class T>
HT_DEVICE void store_shared_ordered(SharedAddress to, const T& value, Site site = Site::current()) {
  static_assert(kOrder != Order::acquire && kOrder != Order::acq_rel, "a store cannot acquire");
#if HT_GPU
  store_form<T, Text("st") + OrderName<kOrder, kScope>::text + ".shared">(to.value, value);
#elif !defined(__CUDACC__)
  sim::write_shared_ordered(sim::self(), to.value, &value, sizeof(T), model::simulated(kOrder),
                            model::simulated(kScope), site);
#endif
}

template <class T, Cache kCache = Cache::all>
HT_DEVICE T load_global(const T* from, Site site = Site::current()) {
  T value{};
#if HT_GPU
  value = load_form<T, load_name<kCache>()>(static_cast<const void*>(from));
#elif !defined(__CUDACC__)
  value = model::load_global(from, site);
#endif
  return value;
}

template <Cache kCache = Cache::all, class T>
HT_DEVICE void store_global(T* to, const T& value, Site site = Site::current()) {
#if HT_GPU
  store_form<T, store_name<kCache>()>(static_cast<const void*>(to), value);
#elif !defined(__CUDACC__)
  model::store_global(to, value, site);
#endif
}

// With the L2's treatment of the line, from `kEvictFirst` and the like or `make_policy`.
template <class T, Cache kCache = Cache::all>
HT_DEVICE T load_global(const T* from, CachePolicy policy, Site site = Site::current()) {
  T value{};
#if HT_GPU
  value = load_form<T, load_name<kCache>() + ".L2::cache_hint">(static_cast<const void*>(from),
                                                                policy.bits);
#elif !defined(__CUDACC__)
  static_cast<void>(policy);
  value = model::load_global(from, site);
#endif
  return value;
}

template <Cache kCache = Cache::all, class T>
HT_DEVICE void store_global(T* to, const T& value, CachePolicy policy,
                            Site site = Site::current()) {
#if HT_GPU
  store_form<T, store_name<kCache>() + ".L2::cache_hint">(static_cast<const void*>(to), value,
                                                          policy.bits);
#elif !defined(__CUDACC__)
  static_cast<void>(policy);
  model::store_global(to, value, site);
#endif
}

template <class T, Order kOrder, Scope kScope = Scope::gpu>
HT_DEVICE T load_global_ordered(const T* from, Site site = Site::current()) {
  static_assert(kOrder != Order::release && kOrder != Order::acq_rel, "a load cannot release");
  T value{};
#if HT_GPU
  value = load_form<T, Text("ld") + OrderName<kOrder, kScope>::text + ".global">(
      static_cast<const void*>(from));
#elif !defined(__CUDACC__)
  sim::count_global(sim::self(), from, sizeof(T), false);
  sim::read_global_ordered(sim::self(), from, &value, sizeof(T), model::simulated(kOrder),
                           model::simulated(kScope), site);
#endif
  return value;
}

template <Order kOrder, Scope kScope = Scope::gpu, class T>
HT_DEVICE void store_global_ordered(T* to, const T& value, Site site = Site::current()) {
  static_assert(kOrder != Order::acquire && kOrder != Order::acq_rel, "a store cannot acquire");
#if HT_GPU
  store_form<T, Text("st") + OrderName<kOrder, kScope>::text + ".global">(
      static_cast<const void*>(to), value);
#elif !defined(__CUDACC__)
  sim::count_global(sim::self(), to, sizeof(T), true);
  sim::write_global_ordered(sim::self(), to, &value, sizeof(T), model::simulated(kOrder),
                            model::simulated(kScope), site);
#endif
}

enum class CacheLevel : uint8_t { l1, l2, l2_evict_last, l2_evict_normal };

// Asks for the line of `from`; no value arrives and nothing waits.
template <CacheLevel kLevel = CacheLevel::l2>
HT_DEVICE void prefetch_global(const void* from, Site site = Site::current()) {
#if HT_GPU
  if constexpr (kLevel == CacheLevel::l1) asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
  if constexpr (kLevel == CacheLevel::l2) asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
  if constexpr (kLevel == CacheLevel::l2_evict_last) {
    asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(from));
  }
  if constexpr (kLevel == CacheLevel::l2_evict_normal) {
    asm volatile("prefetch.global.L2::evict_normal [%0];" ::"l"(from));
  }
#elif !defined(__CUDACC__)
  static_cast<void>(from);
  static_cast<void>(site);
#endif
}

enum class Evict : uint8_t { first, normal, last, unchanged };

// A policy for a share of the accesses that carry it; the others are treated as normal.
template <Evict kEvict>
HT_DEVICE CachePolicy make_policy(float fraction = 1.0f, Site site = Site::current()) {
  CachePolicy policy;
#if HT_GPU
  if constexpr (kEvict == Evict::first) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, %1;" : "=l"(policy.bits) : "f"(fraction));
  } else if constexpr (kEvict == Evict::normal) {
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, %1;" : "=l"(policy.bits) : "f"(fraction));
  } else if constexpr (kEvict == Evict::last) {
    asm("createpolicy.fractional.L2::evict_last.b64 %0, %1;" : "=l"(policy.bits) : "f"(fraction));
  } else {
    asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, %1;"
        : "=l"(policy.bits)
        : "f"(fraction));
  }
#elif !defined(__CUDACC__)
  constexpr CachePolicy kPolicies[] = {kEvictFirst, kEvictNormal, kEvictLast, kEvictNormal};
  policy = kPolicies[static_cast<int>(kEvict)];
  static_cast<void>(fraction);
  static_cast<void>(site);
#endif
  return policy;
}

}  // namespace halftone::hw

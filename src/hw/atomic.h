// Atomic operations on shared and global memory: atom (returns the value before) and red (does
// not). Relaxed and for the whole device unless an order and a scope are named; both sides of a
// hand-over name them, or have fences (fence.h).
#pragma once
#include "hw/atomic_form.h"

namespace halftone::hw {

template <Atomic kOperation, Order kOrder = Order::relaxed, Scope kScope = Scope::cta, class T>
HT_DEVICE T atomic_shared(SharedAddress at, T value, Site site = Site::current()) {
  constexpr Type kType = TypeOf<T>::value;
  static_assert(atomic_types(kOperation, kType), "atom has no such operation on this type");
  T old{};
#if HT_GPU
  old = atom_form<Text("atom") + OrderName<kOrder, kScope>::text + ".shared" +
                  atomic_name<kOperation, kType>().at>(at.value, value);
#elif !defined(__CUDACC__)
  old = model::atomic_shared<kOrder, kScope, T>(
      at.value, [&](T found) { return model::combine<kOperation>(found, value); }, site);
#endif
  return old;
}

template <Atomic kOperation, Order kOrder = Order::relaxed, Scope kScope = Scope::gpu, class T>
HT_DEVICE T atomic_global(T* at, T value, Site site = Site::current()) {
  constexpr Type kType = TypeOf<T>::value;
  static_assert(atomic_types(kOperation, kType), "atom has no such operation on this type");
  T old{};
#if HT_GPU
  old = atom_form<Text("atom") + OrderName<kOrder, kScope>::text + ".global" +
                  atomic_name<kOperation, kType>().at>(static_cast<const void*>(at), value);
#elif !defined(__CUDACC__)
  old = model::atomic_global<kOrder, kScope, T>(
      at, [&](T found) { return model::combine_global<kOperation>(found, value); }, site);
#endif
  return old;
}

// Adds two f16 or bf16, each rounded on its own.
template <Type kType, Order kOrder = Order::relaxed, Scope kScope = Scope::gpu,
          class Target = ThisTarget>
HT_DEVICE uint32_t atomic_add_pair_global(uint32_t* at, uint32_t pair,
                                          Site site = Site::current()) {
  static_assert(kType == Type::f16x2 || kType == Type::bf16x2, "pairs of f16 or bf16");
  static_assert(kType == Type::f16x2 || Target::has(Feature::mbarrier_tx),
                "atomic additions of bf16 exist from sm_90 on");
  uint32_t old = 0;
#if HT_GPU
  old = atom_form<Text("atom") + OrderName<kOrder, kScope>::text + ".global.add.noftz." +
                  TypeName<kType>::text>(static_cast<const void*>(at), pair);
#elif !defined(__CUDACC__)
  if (kType == Type::bf16x2) sim::require(Feature::mbarrier_tx, "atom.add.bf16x2", site);
  old = model::atomic_global<kOrder, kScope, uint32_t>(
      at, [&](uint32_t found) { return sim::add_pair(kType == Type::bf16x2, found, pair); }, site);
#endif
  return old;
}

// Writes `desired` where `expected` is found; returns what was found.
template <Order kOrder = Order::relaxed, Scope kScope = Scope::cta, class T>
HT_DEVICE T atomic_cas_shared(SharedAddress at, T expected, T desired,
                              Site site = Site::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atom.cas takes 4 or 8 bytes");
  T old{};
#if HT_GPU
  old = cas_form<Text("atom") + OrderName<kOrder, kScope>::text + ".shared.cas">(at.value, expected,
                                                                                 desired);
#elif !defined(__CUDACC__)
  old = model::atomic_shared<kOrder, kScope, T>(
      at.value, [&](T found) { return model::same(found, expected) ? desired : found; }, site);
#endif
  return old;
}

template <Order kOrder = Order::relaxed, Scope kScope = Scope::gpu, class T>
HT_DEVICE T atomic_cas_global(T* at, T expected, T desired, Site site = Site::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atom.cas takes 4 or 8 bytes");
  T old{};
#if HT_GPU
  old = cas_form<Text("atom") + OrderName<kOrder, kScope>::text + ".global.cas">(
      static_cast<const void*>(at), expected, desired);
#elif !defined(__CUDACC__)
  old = model::atomic_global<kOrder, kScope, T>(
      at, [&](T found) { return model::same(found, expected) ? desired : found; }, site);
#endif
  return old;
}

template <Atomic kOperation, Order kOrder = Order::relaxed, Scope kScope = Scope::cta, class T>
HT_DEVICE void reduce_shared(SharedAddress at, T value, Site site = Site::current()) {
  constexpr Type kType = TypeOf<T>::value;
  static_assert(atomic_types(kOperation, kType) && kOperation != Atomic::exch,
                "red has no such operation on this type");
#if HT_GPU
  red_form<Text("red") + OrderName<kOrder, kScope>::text + ".shared" +
           atomic_name<kOperation, kType>().at>(at.value, value);
#elif !defined(__CUDACC__)
  model::atomic_shared<kOrder, kScope, T>(
      at.value, [&](T found) { return model::combine<kOperation>(found, value); }, site);
#endif
}

template <Atomic kOperation, Order kOrder = Order::relaxed, Scope kScope = Scope::gpu, class T>
HT_DEVICE void reduce_global(T* at, T value, Site site = Site::current()) {
  constexpr Type kType = TypeOf<T>::value;
  static_assert(atomic_types(kOperation, kType) && kOperation != Atomic::exch,
                "red has no such operation on this type");
#if HT_GPU
  red_form<Text("red") + OrderName<kOrder, kScope>::text + ".global" +
           atomic_name<kOperation, kType>().at>(static_cast<const void*>(at), value);
#elif !defined(__CUDACC__)
  model::atomic_global<kOrder, kScope, T>(
      at, [&](T found) { return model::combine_global<kOperation>(found, value); }, site);
#endif
}

// Adds 16 bytes of f32, f16 or bf16 to global memory, each element atomically on its own.
template <Type kType, Scope kScope = Scope::gpu, class Target = ThisTarget>
HT_DEVICE void reduce_add_vector_global(void* at, const Words4& v, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "red of vectors exists from sm_90 on");
  static_assert(kType == Type::f32 || kType == Type::f16x2 || kType == Type::bf16x2,
                "vectors of f32, f16x2 or bf16x2");
#if HT_GPU
  constexpr auto kType4 = [] {
    if constexpr (kType == Type::f32)
      return Text(".global.v4.f32.add");
    else if constexpr (kType == Type::f16x2)
      return Text(".global.v4.f16x2.add.noftz");
    else
      return Text(".global.v4.bf16x2.add.noftz");
  }();
  asm volatile(
      "%0 [%1], {%2, %3, %4, %5};" ::"C"(
          Mnemonic<Text("red") + OrderName<Order::relaxed, kScope>::text + kType4.at>::text),
      "l"(at), "r"(v.at[0]), "r"(v.at[1]), "r"(v.at[2]), "r"(v.at[3])
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "red.v4", site);
  for (uint32_t i = 0; i < 4; i++) {
    model::atomic_global<Order::relaxed, kScope, uint32_t>(
        static_cast<uint32_t*>(at) + i,
        [&](uint32_t found) {
          if (kType != Type::f32) return sim::add_pair(kType == Type::bf16x2, found, v.at[i]);
          return std::bit_cast<uint32_t>(model::combine_global<Atomic::add>(
              std::bit_cast<float>(found), std::bit_cast<float>(v.at[i])));
        },
        site);
  }
#endif
}

}  // namespace halftone::hw

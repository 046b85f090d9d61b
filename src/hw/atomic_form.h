// Operations of atom and red, their forms in the assembly and in the model: what atomic.h is made
// of.
#pragma once
#include <cstring>
#include <type_traits>

#include "hw/access.h"
#include "hw/address.h"
#include "hw/mnemonic.h"
#include "hw/types.h"
#if !defined(__CUDACC__)
#include "sim/half_arithmetic.h"
#endif

namespace halftone::hw {

// inc and dec wrap around at the operand: x >= v ? 0 : x + 1, and x == 0 || x > v ? v : x - 1.
enum class Atomic : uint8_t { add, min, max, inc, dec, and_, or_, xor_, exch };

// ".add.f32", ".and.b32": additions of s64 are those of u64.
template <Atomic kOperation, Type kType>
constexpr auto atomic_name() {
  constexpr Type kAdded = kType == Type::s64 ? Type::u64 : kType;
  constexpr Type kBits = bits_of(kType) == 64 ? Type::b64 : Type::b32;
  if constexpr (kOperation == Atomic::add) return Text(".add.") + TypeName<kAdded>::text;
  if constexpr (kOperation == Atomic::min) return Text(".min.") + TypeName<kType>::text;
  if constexpr (kOperation == Atomic::max) return Text(".max.") + TypeName<kType>::text;
  if constexpr (kOperation == Atomic::inc) return Text(".inc.u32");
  if constexpr (kOperation == Atomic::dec) return Text(".dec.u32");
  if constexpr (kOperation == Atomic::and_) return Text(".and.") + TypeName<kBits>::text;
  if constexpr (kOperation == Atomic::or_) return Text(".or.") + TypeName<kBits>::text;
  if constexpr (kOperation == Atomic::xor_) return Text(".xor.") + TypeName<kBits>::text;
  if constexpr (kOperation == Atomic::exch) return Text(".exch.") + TypeName<kBits>::text;
}

constexpr bool atomic_types(Atomic operation, Type type) {
  const bool integer =
      type == Type::u32 || type == Type::s32 || type == Type::u64 || type == Type::s64;
  switch (operation) {
    case Atomic::add:
      return integer || type == Type::f32 || type == Type::f64;
    case Atomic::min:
    case Atomic::max:
      return integer;
    case Atomic::inc:
    case Atomic::dec:
      return type == Type::u32;
    case Atomic::exch:
      return true;
    default:
      return integer;
  }
}

#if HT_GPU
// Values go as bits: registers of inline assembly have no other type.
#define HT_ATOMIC(constraint, Address)                                                             \
  template <Text kForm, class T>                                                                   \
  HT_DEVICE T atom_form(Address at, const T& value) {                                              \
    if constexpr (sizeof(T) == 4) {                                                                \
      uint32_t old;                                                                                \
      asm volatile("%1 %0, [%2], %3;"                                                              \
                   : "=r"(old)                                                                     \
                   : "C"(Mnemonic<kForm>::text), constraint(at),                                   \
                     "r"(std::bit_cast<uint32_t>(value))                                           \
                   : "memory");                                                                    \
      return std::bit_cast<T>(old);                                                                \
    } else {                                                                                       \
      uint64_t old;                                                                                \
      asm volatile("%1 %0, [%2], %3;"                                                              \
                   : "=l"(old)                                                                     \
                   : "C"(Mnemonic<kForm>::text), constraint(at),                                   \
                     "l"(std::bit_cast<uint64_t>(value))                                           \
                   : "memory");                                                                    \
      return std::bit_cast<T>(old);                                                                \
    }                                                                                              \
  }                                                                                                \
  template <Text kForm, class T>                                                                   \
  HT_DEVICE T cas_form(Address at, const T& expected, const T& desired) {                          \
    if constexpr (sizeof(T) == 4) {                                                                \
      uint32_t old;                                                                                \
      asm volatile("%1.b32 %0, [%2], %3, %4;"                                                      \
                   : "=r"(old)                                                                     \
                   : "C"(Mnemonic<kForm>::text), constraint(at),                                   \
                     "r"(std::bit_cast<uint32_t>(expected)), "r"(std::bit_cast<uint32_t>(desired)) \
                   : "memory");                                                                    \
      return std::bit_cast<T>(old);                                                                \
    } else {                                                                                       \
      uint64_t old;                                                                                \
      asm volatile("%1.b64 %0, [%2], %3, %4;"                                                      \
                   : "=l"(old)                                                                     \
                   : "C"(Mnemonic<kForm>::text), constraint(at),                                   \
                     "l"(std::bit_cast<uint64_t>(expected)), "l"(std::bit_cast<uint64_t>(desired)) \
                   : "memory");                                                                    \
      return std::bit_cast<T>(old);                                                                \
    }                                                                                              \
  }                                                                                                \
  template <Text kForm, class T>                                                                   \
  HT_DEVICE void red_form(Address at, const T& value) {                                            \
    if constexpr (sizeof(T) == 4) {                                                                \
      asm volatile("%0 [%1], %2;" ::"C"(Mnemonic<kForm>::text), constraint(at),                    \
                   "r"(std::bit_cast<uint32_t>(value))                                             \
                   : "memory");                                                                    \
    } else {                                                                                       \
      asm volatile("%0 [%1], %2;" ::"C"(Mnemonic<kForm>::text), constraint(at),                    \
                   "l"(std::bit_cast<uint64_t>(value))                                             \
                   : "memory");                                                                    \
    }                                                                                              \
  }
HT_ATOMIC("r", uint32_t)
HT_ATOMIC("l", const void*)
#undef HT_ATOMIC
#elif !defined(__CUDACC__)
namespace model {
template <Atomic kOperation, class T>
T combine(T old, T value) {
  if constexpr (kOperation == Atomic::add) {
    if constexpr (std::is_same_v<T, float>)  // writes the one NaN
      return sim::add_f32(old, value, sim::RoundF32::nearest_even, false);
    else if constexpr (std::is_floating_point_v<T>)
      return old + value;
    else
      return static_cast<T>(static_cast<std::make_unsigned_t<T> >(old) +
                            static_cast<std::make_unsigned_t<T> >(value));
  }
  if constexpr (kOperation == Atomic::min) return value < old ? value : old;
  if constexpr (kOperation == Atomic::max) return value > old ? value : old;
  if constexpr (kOperation == Atomic::inc) return old >= value ? 0 : old + 1;
  if constexpr (kOperation == Atomic::dec) return old == 0 || old > value ? value : old - 1;
  if constexpr (kOperation == Atomic::and_) return old & value;
  if constexpr (kOperation == Atomic::or_) return old | value;
  if constexpr (kOperation == Atomic::xor_) return old ^ value;
  if constexpr (kOperation == Atomic::exch) return value;
}

// Replaces the T at `at` by update(T); returns what it was.
template <Order kOrder, Scope kScope, class T, class Update>
T atomic_shared(uint32_t at, Update update, const Site& site) {
  T old{};
  sim::Thread& me = sim::self();
  sim::count_shared(me, at, sizeof(T), "atom.shared", site);
  sim::atomic_shared(
      me, at, sizeof(T), simulated(kOrder), simulated(kScope),
      [&](void* value) {
        std::memcpy(&old, value, sizeof(T));
        const T updated = update(old);
        std::memcpy(value, &updated, sizeof(T));
      },
      site);
  return old;
}
template <Order kOrder, Scope kScope, class T, class Update>
T atomic_global(void* at, Update update, const Site& site) {
  T old{};
  sim::Thread& me = sim::self();
  sim::count_global(me, at, sizeof(T), true);
  sim::atomic_global(
      me, at, sizeof(T), simulated(kOrder), simulated(kScope),
      [&](void* value) {
        std::memcpy(&old, value, sizeof(T));
        const T updated = update(old);
        std::memcpy(value, &updated, sizeof(T));
      },
      site);
  return old;
}
template <class T>
bool same(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}
// Additions of f32 to global memory flush subnormals; those to shared memory do not.
template <Atomic kOperation, class T>
T combine_global(T old, T value) {
  if constexpr (std::is_same_v<T, float> && kOperation == Atomic::add) {
    return sim::add_f32(old, value, sim::RoundF32::nearest_even, true);
  } else {
    return combine<kOperation>(old, value);
  }
}
}  // namespace model
#endif

}  // namespace halftone::hw

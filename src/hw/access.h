// Loads and stores of 1 to 16 bytes by their PTX forms: what memory.h and cluster.h share. A form
// is the instruction without its size ("ld.global.L1::no_allocate").
#pragma once
#include <bit>
#include <cstdint>

#include "hw/mnemonic.h"
#include "hw/types.h"
#if !defined(__CUDACC__)
#include "sim/memory/memory.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// Some values side by side, moved by one access.
template <class T, uint32_t kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T at[kCount];
  HT_HOST_DEVICE T& operator[](uint32_t i) { return at[i]; }
  HT_HOST_DEVICE const T& operator[](uint32_t i) const { return at[i]; }
};
using Words4 = Vector<uint32_t, 4>;

template <class T>
inline constexpr bool kAccessible = sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 ||
                                    sizeof(T) == 8 || sizeof(T) == 16;

#if HT_GPU
// Forms differ in their address (32 bits in shared memory, 64 in global memory) and in whether the
// policy of `.L2::cache_hint` ends them.
#define HT_NO_TAIL(number) ""
#define HT_POLICY_TAIL(number) ", %" #number
#define HT_POLICY_OPERAND , "l"(policy)

#define HT_ACCESS(address, PARAMETERS, TAIL, OPERAND)                                           \
  template <class T, Text kForm>                                                                \
  HT_DEVICE T load_form PARAMETERS {                                                            \
    static_assert(kAccessible<T>, "one access moves 1, 2, 4, 8 or 16 bytes");                   \
    if constexpr (sizeof(T) == 1) {                                                             \
      uint32_t value;                                                                           \
      asm volatile("%1.u8 %0, [%2]" TAIL(3) ";"                                                 \
                   : "=r"(value)                                                                \
                   : "C"(Mnemonic<kForm>::text), address(at) OPERAND                            \
                   : "memory");                                                                 \
      return std::bit_cast<T>(static_cast<uint8_t>(value));                                     \
    } else if constexpr (sizeof(T) == 2) {                                                      \
      uint16_t value;                                                                           \
      asm volatile("%1.u16 %0, [%2]" TAIL(3) ";"                                                \
                   : "=h"(value)                                                                \
                   : "C"(Mnemonic<kForm>::text), address(at) OPERAND                            \
                   : "memory");                                                                 \
      return std::bit_cast<T>(value);                                                           \
    } else if constexpr (sizeof(T) == 4) {                                                      \
      uint32_t value;                                                                           \
      asm volatile("%1.u32 %0, [%2]" TAIL(3) ";"                                                \
                   : "=r"(value)                                                                \
                   : "C"(Mnemonic<kForm>::text), address(at) OPERAND                            \
                   : "memory");                                                                 \
      return std::bit_cast<T>(value);                                                           \
    } else if constexpr (sizeof(T) == 8) {                                                      \
      Vector<uint32_t, 2> value;                                                                \
      asm volatile("%2.v2.u32 {%0, %1}, [%3]" TAIL(4) ";"                                       \
                   : "=r"(value.at[0]), "=r"(value.at[1])                                       \
                   : "C"(Mnemonic<kForm>::text), address(at) OPERAND                            \
                   : "memory");                                                                 \
      return std::bit_cast<T>(value);                                                           \
    } else {                                                                                    \
      Words4 value;                                                                             \
      asm volatile("%4.v4.u32 {%0, %1, %2, %3}, [%5]" TAIL(6) ";"                               \
                   : "=r"(value.at[0]), "=r"(value.at[1]), "=r"(value.at[2]), "=r"(value.at[3]) \
                   : "C"(Mnemonic<kForm>::text), address(at) OPERAND                            \
                   : "memory");                                                                 \
      return std::bit_cast<T>(value);                                                           \
    }                                                                                           \
  }

#define HT_STORE(address, PARAMETERS, TAIL, OPERAND)                                            \
  template <class T, Text kForm>                                                                \
  HT_DEVICE void store_form PARAMETERS {                                                        \
    static_assert(kAccessible<T>, "one access moves 1, 2, 4, 8 or 16 bytes");                   \
    if constexpr (sizeof(T) == 1) {                                                             \
      asm volatile("%0.u8 [%1], %2" TAIL(3) ";" ::"C"(Mnemonic<kForm>::text), address(at),      \
                   "r"(uint32_t{std::bit_cast<uint8_t>(value)})OPERAND                          \
                   : "memory");                                                                 \
    } else if constexpr (sizeof(T) == 2) {                                                      \
      asm volatile("%0.u16 [%1], %2" TAIL(3) ";" ::"C"(Mnemonic<kForm>::text), address(at),     \
                   "h"(std::bit_cast<uint16_t>(value))OPERAND                                   \
                   : "memory");                                                                 \
    } else if constexpr (sizeof(T) == 4) {                                                      \
      asm volatile("%0.u32 [%1], %2" TAIL(3) ";" ::"C"(Mnemonic<kForm>::text), address(at),     \
                   "r"(std::bit_cast<uint32_t>(value))OPERAND                                   \
                   : "memory");                                                                 \
    } else if constexpr (sizeof(T) == 8) {                                                      \
      const auto words = std::bit_cast<Vector<uint32_t, 2>>(value);                             \
      asm volatile("%0.v2.u32 [%1], {%2, %3}" TAIL(4) ";" ::"C"(Mnemonic<kForm>::text),         \
                   address(at), "r"(words.at[0]), "r"(words.at[1])OPERAND                       \
                   : "memory");                                                                 \
    } else {                                                                                    \
      const auto words = std::bit_cast<Words4>(value);                                          \
      asm volatile("%0.v4.u32 [%1], {%2, %3, %4, %5}" TAIL(6) ";" ::"C"(Mnemonic<kForm>::text), \
                   address(at), "r"(words.at[0]), "r"(words.at[1]), "r"(words.at[2]),           \
                   "r"(words.at[3])OPERAND                                                      \
                   : "memory");                                                                 \
    }                                                                                           \
  }

HT_ACCESS("r", (uint32_t at), HT_NO_TAIL, )
HT_ACCESS("l", (const void* at), HT_NO_TAIL, )
HT_ACCESS("l", (const void* at, uint64_t policy), HT_POLICY_TAIL, HT_POLICY_OPERAND)
HT_STORE("r", (uint32_t at, const T& value), HT_NO_TAIL, )
HT_STORE("l", (const void* at, const T& value), HT_NO_TAIL, )
HT_STORE("l", (const void* at, const T& value, uint64_t policy), HT_POLICY_TAIL, HT_POLICY_OPERAND)
#undef HT_ACCESS
#undef HT_STORE
#undef HT_NO_TAIL
#undef HT_POLICY_TAIL
#undef HT_POLICY_OPERAND
#elif !defined(__CUDACC__)
// The running thread's accesses, counted.
namespace model {
constexpr sim::Order simulated(Order order) { return static_cast<sim::Order>(order); }
constexpr sim::MemoryScope simulated(Scope scope) { return static_cast<sim::MemoryScope>(scope); }

template <class T>
T load_shared(uint32_t from, const char* what, const Site& site) {
  static_assert(kAccessible<T>, "one access moves 1, 2, 4, 8 or 16 bytes");
  sim::Thread& me = sim::self();
  sim::count_shared(me, from, sizeof(T), what, site);
  return sim::read_shared<T>(me, from, site);
}
template <class T>
void store_shared(uint32_t to, const T& value, const char* what, const Site& site) {
  static_assert(kAccessible<T>, "one access moves 1, 2, 4, 8 or 16 bytes");
  sim::Thread& me = sim::self();
  sim::count_shared(me, to, sizeof(T), what, site);
  sim::write_shared(me, to, value, site);
}
template <class T>
T load_global(const T* from, const Site& site) {
  static_assert(kAccessible<T>, "one access moves 1, 2, 4, 8 or 16 bytes");
  sim::Thread& me = sim::self();
  sim::count_global(me, from, sizeof(T), false);
  return sim::read_global(me, from, site);
}
template <class T>
void store_global(T* to, const T& value, const Site& site) {
  static_assert(kAccessible<T>, "one access moves 1, 2, 4, 8 or 16 bytes");
  sim::Thread& me = sim::self();
  sim::count_global(me, to, sizeof(T), true);
  sim::write_global(me, to, value, site);
}
}  // namespace model
#endif

}  // namespace halftone::hw

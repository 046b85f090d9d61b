// wgmma.mma_async (sm_90a): D (64 x N) = A B + D by a warpgroup, asynchronously. A (64 x K) lies in
// shared memory or in registers, B (K x N) in shared memory; K is 256 bits. N is told by the size
// of D: N / 2 registers of f32 or s32 each thread, N / 4 of f16 pairs (tile/fragment.h).
//
//   wgmma_fence();                        // D and A in registers are as written
//   wgmma<Type::bf16>(d, a, b, false);    // D = A B; true adds to D
//   wgmma_commit();
//   wgmma_wait<0>();                      // not earlier than this, D may be read
//   hold_registers(d);                    // keeps the compiler from reading D before the wait
#pragma once
#include <type_traits>

#include "hw/types.h"
#include "tile/descriptor.h"
#if HT_GPU
#include "hw/mma/wgmma_assembly.h"
#elif !defined(__CUDACC__)
#include "hw/mma/mma.h"
#include "sim/mma/wgmma.h"
#endif

namespace halftone::hw {

using tile::WgmmaDescriptor;

constexpr bool is_half(Type type) { return type == Type::f16 || type == Type::bf16; }
constexpr bool is_fp8(Type type) { return type == Type::e4m3 || type == Type::e5m2; }
constexpr bool is_int8(Type type) { return type == Type::s8 || type == Type::u8; }

// The pairs of types, and the accumulators they have.
template <class D>
constexpr bool wgmma_types(Type a, Type b) {
  if (std::is_same_v<D, int32_t>) return is_int8(a) && is_int8(b);
  if (std::is_same_v<D, uint32_t>) return (a == Type::f16 && b == a) || (is_fp8(a) && is_fp8(b));
  return std::is_same_v<D, float> &&
         ((is_half(a) && b == a) || (a == Type::tf32 && b == a) || (is_fp8(a) && is_fp8(b)));
}
template <class D>
constexpr uint32_t wgmma_columns(uint32_t registers) {
  return registers * (std::is_same_v<D, uint32_t> ? 4 : 2);
}
// N is a multiple of 8 up to 256; with s32, above 32, of 16.
template <class D>
constexpr bool wgmma_shape(uint32_t n) {
  return n >= 8 && n <= 256 && n % 8 == 0 &&
         (!std::is_same_v<D, int32_t> || n <= 24 || n % 16 == 0);
}

#if HT_GPU
template <uint32_t kNumber>
constexpr auto number_text() {
  if constexpr (kNumber < 10) {
    return Text<2>({char('0' + kNumber), '\0'});
  } else {
    return number_text<kNumber / 10>() + number_text<kNumber % 10>();
  }
}
template <class D, uint32_t kN, Type kA, Type kB>
constexpr auto wgmma_name() {
  constexpr uint32_t kK = 256 / bits_of(kA);
  constexpr Type kD = std::is_same_v<D, float>     ? Type::f32
                      : std::is_same_v<D, int32_t> ? Type::s32
                                                   : Type::f16;
  return Text("wgmma.mma_async.sync.aligned.m64n") + number_text<kN>() + "k" + number_text<kK>() +
         "." + TypeName<kD>::text + "." + TypeName<kA>::text + "." + TypeName<kB>::text;
}
// Behind the predicate: signs of A and B for all but integers, the transposes of 16-bit operands in
// shared memory.
template <Type kType, bool kSharedA, bool kTransposeA, bool kTransposeB>
constexpr auto wgmma_tail() {
  if constexpr (is_int8(kType)) {
    return Text("");
  } else if constexpr (!is_half(kType)) {
    return Text(", 1, 1");
  } else if constexpr (kSharedA) {
    return Text(", 1, 1, ") + number_text<kTransposeA>() + ", " + number_text<kTransposeB>();
  } else {
    return Text(", 1, 1, ") + number_text<kTransposeB>();
  }
}
#endif

#if !defined(__CUDACC__)
namespace model {
template <class D, uint32_t kCount, Type kA, Type kB, tile::Major kMajorA, tile::Major kMajorB>
constexpr sim::Wgmma wgmma() {
  constexpr auto kAccumulator = std::is_same_v<D, float>     ? sim::MmaAccumulator::f32
                                : std::is_same_v<D, int32_t> ? sim::MmaAccumulator::s32
                                                             : sim::MmaAccumulator::f16;
  return {Mnemonic<Text("wgmma.") + TypeName<kA>::text>::text,
          mma_element(kA),
          mma_element(kB),
          kAccumulator,
          static_cast<int>(wgmma_columns<D>(kCount)),
          static_cast<int>(bits_of(kA)),
          kMajorA,
          kMajorB};
}
}  // namespace model
#endif

// A and B in shared memory, K-major, or for 16-bit types MN-major where kMajorA, kMajorB say so.
template <Type kA, Type kB = kA, tile::Major kMajorA = tile::Major::k,
          tile::Major kMajorB = tile::Major::k, class Target = ThisTarget, class D, uint32_t kCount>
HT_DEVICE void wgmma(D (&d)[kCount], WgmmaDescriptor a, WgmmaDescriptor b, bool accumulate,
                     Site site = Site::current()) {
  static_assert(Target::has(Feature::wgmma), "wgmma exists on sm_90a only");
  static_assert(wgmma_types<D>(kA, kB), "wgmma has no such types of A, B and D");
  static_assert(wgmma_shape<D>(wgmma_columns<D>(kCount)), "wgmma has no such N");
  static_assert((kMajorA == tile::Major::k && kMajorB == tile::Major::k) || is_half(kA),
                "only f16 and bf16 operands may be MN-major");
#if HT_GPU
  wgmma_assembly<wgmma_name<D, wgmma_columns<D>(kCount), kA, kB>(),
                 wgmma_tail<kA, true, kMajorA == tile::Major::mn, kMajorB == tile::Major::mn>()>(
      d, a.bits, b.bits, accumulate);
#elif !defined(__CUDACC__)
  sim::wgmma(model::wgmma<D, kCount, kA, kB, kMajorA, kMajorB>(), d, a, b, accumulate, site);
#endif
}

// A in registers: the fragment of 64 x K in four of each thread.
template <Type kA, Type kB = kA, tile::Major kMajorB = tile::Major::k, class Target = ThisTarget,
          class D, uint32_t kCount>
HT_DEVICE void wgmma(D (&d)[kCount], const uint32_t (&a)[4], WgmmaDescriptor b, bool accumulate,
                     Site site = Site::current()) {
  static_assert(Target::has(Feature::wgmma), "wgmma exists on sm_90a only");
  static_assert(wgmma_types<D>(kA, kB), "wgmma has no such types of A, B and D");
  static_assert(wgmma_shape<D>(wgmma_columns<D>(kCount)), "wgmma has no such N");
  static_assert(kMajorB == tile::Major::k || is_half(kA), "only f16 and bf16 may be MN-major");
#if HT_GPU
  wgmma_assembly<wgmma_name<D, wgmma_columns<D>(kCount), kA, kB>(),
                 wgmma_tail<kA, false, false, kMajorB == tile::Major::mn>()>(d, a, b.bits,
                                                                             accumulate);
#elif !defined(__CUDACC__)
  sim::wgmma(model::wgmma<D, kCount, kA, kB, tile::Major::k, kMajorB>(), d, a, b, accumulate, site);
#endif
}

// Before the first wgmma, and whenever registers of D or A were written in between.
template <class Target = ThisTarget>
HT_DEVICE void wgmma_fence(Site site = Site::current()) {
  static_assert(Target::has(Feature::wgmma), "wgmma exists on sm_90a only");
#if HT_GPU
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::wgmma_fence(site);
#endif
}

// Closes the group of wgmma since the last one.
template <class Target = ThisTarget>
HT_DEVICE void wgmma_commit(Site site = Site::current()) {
  static_assert(Target::has(Feature::wgmma), "wgmma exists on sm_90a only");
#if HT_GPU
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::wgmma_commit(site);
#endif
}

// Waits until all but the kPending latest groups are done.
template <uint32_t kPending, class Target = ThisTarget>
HT_DEVICE void wgmma_wait(Site site = Site::current()) {
  static_assert(Target::has(Feature::wgmma), "wgmma exists on sm_90a only");
  static_assert(kPending <= 7, "wgmma.wait_group takes 0 to 7");
#if HT_GPU
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#elif !defined(__CUDACC__)
  sim::wgmma_wait(kPending, site);
#endif
}

// No instruction: registers that wgmma works on have a new value here, as far as the compiler
// knows. Before a wgmma_fence and after a wgmma_wait, so that their reads and writes stay on their
// side.
template <class T, uint32_t kCount>
HT_DEVICE void hold_registers(T (&registers)[kCount], Site = Site::current()) {
#if HT_GPU
  for (uint32_t i = 0; i < kCount; i++) {
    if constexpr (std::is_same_v<T, float>) {
      asm volatile("" : "+f"(registers[i])::"memory");
    } else {
      asm volatile("" : "+r"(registers[i])::"memory");
    }
  }
#else
  static_cast<void>(registers);
#endif
}

}  // namespace halftone::hw

// mma.sync: D = A B + C by a warp, m16n8kK. Fragments as tile/fragment.h maps them.
#pragma once
#include <cstdint>

#include "hw/mnemonic.h"
#include "hw/types.h"
#if !defined(__CUDACC__)
#include "sim/mma/mma_sync.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

#if !defined(__CUDACC__)
namespace model {
// 4-bit integers go to the simulator spread into bytes.
constexpr sim::MmaElement mma_element(Type type) {
  switch (type) {
    case Type::f16:
      return sim::MmaElement::f16;
    case Type::tf32:
      return sim::MmaElement::tf32;
    case Type::e4m3:
      return sim::MmaElement::e4m3;
    case Type::e5m2:
      return sim::MmaElement::e5m2;
    case Type::s8:
    case Type::s4:
      return sim::MmaElement::s8;
    case Type::u8:
    case Type::u4:
      return sim::MmaElement::u8;
    default:
      return sim::MmaElement::bf16;
  }
}
template <Type kA, Type kB>
constexpr sim::MmaSync mma_sync(const char* name, sim::MmaAccumulator accumulator, int k,
                                bool saturate = false) {
  return {name,
          Mnemonic<Text("mma.sync.") + TypeName<kA>::text>::text,
          mma_element(kA),
          mma_element(kB),
          accumulator,
          k,
          static_cast<int>(bits_of(kA)),
          saturate};
}
}  // namespace model
#endif

// A 16 x 16 bf16 or f16 (row), B 16 x 8 (column), C and D 16 x 8 f32.
template <Type kType>
HT_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            const float (&c)[4], Site site = Site::current()) {
  static_assert(kType == Type::bf16 || kType == Type::f16, "m16n8k16 with f32: bf16 or f16");
#if HT_GPU
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.%14.%14.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  constexpr auto kModel =
      model::mma_sync<kType, kType>("mma.sync.m16n8k16", sim::MmaAccumulator::f32, 16);
  sim::mma_sync(kModel, d, a, b, c, site);
#endif
}

// The same with C and D in f16, two columns a register.
template <Type kType>
HT_DEVICE void mma_m16n8k16(uint32_t (&d)[2], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            const uint32_t (&c)[2], Site site = Site::current()) {
  static_assert(kType == Type::f16, "accumulators in f16 need operands in f16");
#if HT_GPU
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
      "{%8, %9};"
      : "=r"(d[0]), "=r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]));
#elif !defined(__CUDACC__)
  constexpr auto kModel =
      model::mma_sync<kType, kType>("mma.sync.m16n8k16", sim::MmaAccumulator::f16, 16);
  sim::mma_sync(kModel, d, a, b, c, site);
#endif
}

// A 16 x 8, B 8 x 8: bf16 or f16.
template <Type kType>
HT_DEVICE void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1],
                           const float (&c)[4], Site site = Site::current()) {
  static_assert(kType == Type::bf16 || kType == Type::f16, "two registers of A: bf16 or f16");
#if HT_GPU
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.%11.%11.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%7, %8, %9, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]),
        "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  constexpr auto kModel =
      model::mma_sync<kType, kType>("mma.sync.m16n8k8", sim::MmaAccumulator::f32, 8);
  sim::mma_sync(kModel, d, a, b, c, site);
#endif
}

// tf32: a register holds one element, of which the low 13 bits are ignored.
template <Type kType>
HT_DEVICE void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                           const float (&c)[4], Site site = Site::current()) {
  static_assert(kType == Type::tf32, "four registers of A: tf32");
#if HT_GPU
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
#elif !defined(__CUDACC__)
  constexpr auto kModel =
      model::mma_sync<kType, kType>("mma.sync.m16n8k8", sim::MmaAccumulator::f32, 8);
  sim::mma_sync(kModel, d, a, b, c, site);
#endif
}

// A 16 x 32, B 32 x 8 of bytes with signs or without, C and D s32: wraps around, or with kSaturate
// stops at the ends of the range.
template <Type kA, Type kB = kA, bool kSaturate = false>
HT_DEVICE void mma_m16n8k32(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            const int32_t (&c)[4], Site site = Site::current()) {
  static_assert((kA == Type::s8 || kA == Type::u8) && (kB == Type::s8 || kB == Type::u8),
                "s32 accumulators: s8 or u8");
#if HT_GPU
  if constexpr (kSaturate) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.%14.%15.s32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
          "r"(c[2]), "r"(c[3]), "C"(TypeName<kA>::text), "C"(TypeName<kB>::text));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.%14.%15.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %11, %12, %13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
          "r"(c[2]), "r"(c[3]), "C"(TypeName<kA>::text), "C"(TypeName<kB>::text));
  }
#elif !defined(__CUDACC__)
  constexpr auto kModel =
      model::mma_sync<kA, kB>("mma.sync.m16n8k32", sim::MmaAccumulator::s32, 32, kSaturate);
  sim::mma_sync(kModel, d, a, b, c, site);
#endif
}

// A 16 x 32, B 32 x 8 of e4m3 or e5m2, each its own, C and D f32. On sm_90a and sm_100a
// the assembler makes conversions to f16, two f16 products and an addition of it: slower than f16
// itself, and with sums of their own (docs/findings/tensor-core-arithmetic.md); wgmma and tcgen05
// are for FP8 there.
template <Type kA, Type kB = kA, class Target = ThisTarget>
HT_DEVICE void mma_m16n8k32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            const float (&c)[4], Site site = Site::current()) {
  static_assert(Target::has(Feature::mma_fp8), "mma.sync of FP8 exists from sm_89 on");
  static_assert((kA == Type::e4m3 || kA == Type::e5m2) && (kB == Type::e4m3 || kB == Type::e5m2),
                "f32 accumulators: e4m3 or e5m2");
#if HT_GPU
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.%14.%15.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]), "C"(TypeName<kA>::text), "C"(TypeName<kB>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::mma_fp8, "mma.sync of FP8", site);
  constexpr auto kModel =
      model::mma_sync<kA, kB>("mma.sync.m16n8k32", sim::MmaAccumulator::f32, 32);
  sim::mma_sync(kModel, d, a, b, c, site);
#endif
}

// A 16 x 64, B 64 x 8 of 4-bit integers, the lower nibble first.
template <Type kA, Type kB = kA>
HT_DEVICE void mma_m16n8k64(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            const int32_t (&c)[4], Site site = Site::current()) {
  static_assert((kA == Type::s4 || kA == Type::u4) && (kB == Type::s4 || kB == Type::u4),
                "m16n8k64: s4 or u4");
#if HT_GPU
  asm volatile(
      "mma.sync.aligned.m16n8k64.row.col.s32.%14.%15.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]), "C"(TypeName<kA>::text), "C"(TypeName<kB>::text));
#elif !defined(__CUDACC__)
  constexpr auto kModel =
      model::mma_sync<kA, kB>("mma.sync.m16n8k64", sim::MmaAccumulator::s32, 64);
  sim::mma_sync(kModel, d, a, b, c, site);
#endif
}

}  // namespace halftone::hw

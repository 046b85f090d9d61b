// Warp-level matrix products of FP8, FP6 and FP4, plain and with block scales (sm_120a). Fragments
// are those of mma.h for 8-bit (m16n8k32) and 4-bit (m16n8k64) elements: tile/fragment.h.
//
// Kinds f8f6f4 and mxf8f6f4 take every element in a byte: FP6 in bits 5:0, FP4 in bits 5:2.
#pragma once
#include "hw/types.h"
#if !defined(__CUDACC__)
#include "sim/mma/mma_sync_narrow.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// Which lane of a quad and which byte of its register hold a scale. Row m of A: lane
// 4 (m % 8) + 2 thread + m / 8, thread 0 or 1. Column n of B: lane 4 n + thread, thread 0 to 3.
// Bytes byte, byte + 1, ... scale successive blocks along K.
template <int byte, int thread>
struct ScaleAt {
  static_assert(byte >= 0 && byte < 4 && thread >= 0 && thread < 4);
  static constexpr int kByte = byte, kThread = thread;
};

HT_HOST_DEVICE bool is_f8f6f4(Type t) {
  return t == Type::e4m3 || t == Type::e5m2 || t == Type::e2m3 || t == Type::e3m2 ||
         t == Type::e2m1;
}

#if !defined(__CUDACC__)
namespace model {
// An element in a byte, as kinds f8f6f4 and mxf8f6f4 take it.
constexpr sim::MmaElement in_a_byte(Type type) {
  switch (type) {
    case Type::e4m3:
      return sim::MmaElement::e4m3;
    case Type::e5m2:
      return sim::MmaElement::e5m2;
    case Type::e2m3:
      return sim::MmaElement::e2m3;
    case Type::e3m2:
      return sim::MmaElement::e3m2;
    default:
      return sim::MmaElement::e2m1_container;
  }
}
}  // namespace model
#endif

// D = A B + C, m16n8k32.
template <Type a_type, Type b_type, class Target = ThisTarget>
HT_DEVICE void mma_f8f6f4(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                          const float (&c)[4], Site site = Site::current()) {
  static_assert(Target::has(Feature::mma_f8f6f4), "mma.sync kind::f8f6f4 exists on sm_120a only");
  static_assert(is_f8f6f4(a_type) && is_f8f6f4(b_type));
#if HT_GPU
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.%14.%15.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]), "C"(TypeName<a_type>::text), "C"(TypeName<b_type>::text)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mma_f8f6f4, "mma.sync.f8f6f4", site);
  sim::mma_sync_narrow({"mma.sync.f8f6f4", model::in_a_byte(a_type), model::in_a_byte(b_type)}, d,
                       a, b, c, 0, 0, site);
#endif
}

// The same with FP16 accumulators, two columns in a register.
template <Type a_type, Type b_type, class Target = ThisTarget>
HT_DEVICE void mma_f8f6f4(uint32_t (&d)[2], const uint32_t (&a)[4], const uint32_t (&b)[2],
                          const uint32_t (&c)[2], Site site = Site::current()) {
  static_assert(Target::has(Feature::mma_f8f6f4), "mma.sync kind::f8f6f4 exists on sm_120a only");
  static_assert(is_f8f6f4(a_type) && is_f8f6f4(b_type));
#if HT_GPU
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f16.%10.%11.f16 {%0, %1}, "
      "{%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
      : "=r"(d[0]), "=r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
        "C"(TypeName<a_type>::text), "C"(TypeName<b_type>::text)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mma_f8f6f4, "mma.sync.f8f6f4", site);
  sim::mma_sync_narrow({"mma.sync.f8f6f4", model::in_a_byte(a_type), model::in_a_byte(b_type),
                        sim::MmaAccumulator::f16},
                       d, a, b, c, 0, 0, site);
#endif
}

// m16n8k32 with one UE8M0 scale for the 32 elements: byte 0 to 3.
template <Type a_type, Type b_type, class AtA, class AtB, class Target = ThisTarget>
HT_DEVICE void mma_mxf8f6f4(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            const float (&c)[4], uint32_t a_scales, uint32_t b_scales, AtA, AtB,
                            Site site = Site::current()) {
  static_assert(Target::has(Feature::mma_block_scale), "block scales exist on sm_120a only");
  static_assert(is_f8f6f4(a_type) && is_f8f6f4(b_type) && AtA::kThread < 2);
#if HT_GPU
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.%20.%21.f32."
      "ue8m0 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}, %14, {%16, %17}, "
      "%15, {%18, %19};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]), "r"(a_scales), "r"(b_scales), "n"(AtA::kByte), "n"(AtA::kThread),
        "n"(AtB::kByte), "n"(AtB::kThread), "C"(TypeName<a_type>::text), "C"(TypeName<b_type>::text)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mma_block_scale, "mma.sync.mxf8f6f4", site);
  sim::mma_sync_narrow({"mma.sync.mxf8f6f4", model::in_a_byte(a_type), model::in_a_byte(b_type),
                        sim::MmaAccumulator::f32, sim::MmaScales::mxf8f6f4, AtA::kByte,
                        AtA::kThread, AtB::kByte, AtB::kThread},
                       d, a, b, c, a_scales, b_scales, site);
#endif
}

// m16n8k64 of FP4, packed, with a UE8M0 scale for each 32 elements: byte 0 or 2.
template <class AtA, class AtB, class Target = ThisTarget>
HT_DEVICE void mma_mxf4(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                        const float (&c)[4], uint32_t a_scales, uint32_t b_scales, AtA, AtB,
                        Site site = Site::current()) {
  static_assert(Target::has(Feature::mma_block_scale), "block scales exist on sm_120a only");
  static_assert(AtA::kByte % 2 == 0 && AtB::kByte % 2 == 0 && AtA::kThread < 2);
#if HT_GPU
  asm volatile(
      "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32."
      "ue8m0 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}, %14, {%16, %17}, "
      "%15, {%18, %19};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]), "r"(a_scales), "r"(b_scales), "n"(AtA::kByte), "n"(AtA::kThread),
        "n"(AtB::kByte), "n"(AtB::kThread)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mma_block_scale, "mma.sync.mxf4", site);
  sim::mma_sync_narrow(
      {"mma.sync.mxf4", sim::MmaElement::e2m1, sim::MmaElement::e2m1, sim::MmaAccumulator::f32,
       sim::MmaScales::mxf4, AtA::kByte, AtA::kThread, AtB::kByte, AtB::kThread},
      d, a, b, c, a_scales, b_scales, site);
#endif
}

// m16n8k64 of FP4, packed; UE4M3 scales for each 16 elements (all four bytes: byte 0), or UE8M0
// scales for each 32 (byte 0 or 2).
template <Type scale_type, class AtA, class AtB, class Target = ThisTarget>
HT_DEVICE void mma_mxf4nvf4(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            const float (&c)[4], uint32_t a_scales, uint32_t b_scales, AtA, AtB,
                            Site site = Site::current()) {
  static_assert(Target::has(Feature::mma_block_scale), "block scales exist on sm_120a only");
  static_assert(scale_type == Type::ue4m3 || scale_type == Type::ue8m0);
  constexpr int vectors = scale_type == Type::ue4m3 ? 4 : 2;
  static_assert(AtA::kByte % vectors == 0 && AtB::kByte % vectors == 0 && AtA::kThread < 2);
#if HT_GPU
  asm volatile(
      "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::%20X.f32.e2m1.e2m1."
      "f32.%21 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}, "
      "%14, {%16, %17}, %15, {%18, %19};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]), "r"(a_scales), "r"(b_scales), "n"(AtA::kByte), "n"(AtA::kThread),
        "n"(AtB::kByte), "n"(AtB::kThread), "n"(vectors), "C"(TypeName<scale_type>::text)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mma_block_scale, "mma.sync.mxf4nvf4", site);
  sim::mma_sync_narrow(
      {"mma.sync.mxf4nvf4", sim::MmaElement::e2m1, sim::MmaElement::e2m1, sim::MmaAccumulator::f32,
       vectors == 4 ? sim::MmaScales::nvf4 : sim::MmaScales::mxf4, AtA::kByte, AtA::kThread,
       AtB::kByte, AtB::kThread},
      d, a, b, c, a_scales, b_scales, site);
#endif
}

}  // namespace halftone::hw

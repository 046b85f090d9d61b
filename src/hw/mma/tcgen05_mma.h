// tcgen05.mma: matrix products into tensor memory, started by one thread (sm_100a).
//
// A comes from shared memory (Tcgen05Descriptor) or from tensor memory (TensorAddress), B from
// shared memory; D is tensor memory. `instruction` is tile::Tcgen05Instruction::encode(). Every
// form computes D = A B + (accumulate ? D : 0). All of it is asynchronous: operands are read and D
// is written until an mbarrier that a commit named completes.
#pragma once
#include "hw/mma/tcgen05_names.h"

namespace halftone::hw {

// Operand 1 is A: `form` and `operand` differ between the two memories it may be in.
#define HT_TCGEN05_MMA(form, operand)                                                           \
  asm volatile(                                                                                 \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.%5.%6.collector::a::%7 [%0], " form \
      ", %2, %3, p;\n}" ::"r"(d.value),                                                         \
      operand, "l"(b.bits), "r"(instruction), "r"(uint32_t{accumulate}),                        \
      "C"(CtaGroupName<group>::text), "C"(Tcgen05KindName<kind>::text),                         \
      "C"(CollectorName<collector>::text)                                                       \
      : "memory")

// kind: f16, tf32, f8f6f4 or i8.
template <Tcgen05Kind kind, CtaGroup group, Collector collector = Collector::none,
          class Target = ThisTarget, class A>
HT_DEVICE void tcgen05_mma(TensorAddress d, A a, Tcgen05Descriptor b, uint32_t instruction,
                           bool accumulate, Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.mma exists on sm_100a only");
  static_assert(kOperandA<A> && !tile::is_block_scaled(kind));
#if HT_GPU
  if constexpr (std::is_same_v<A, TensorAddress>) {
    HT_TCGEN05_MMA("[%1]", "r"(a.value));
  } else {
    HT_TCGEN05_MMA("%1", "l"(a.bits));
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.mma", site);
  sim::Tcgen05Mma mma{
      kind, static_cast<uint32_t>(group), d.value, model::operand_a(a), b, instruction, accumulate};
  sim::tcgen05_mma(mma, site);
#endif
}
#undef HT_TCGEN05_MMA

#define HT_TCGEN05_MMA_SCALE_D(form, operand)                                                   \
  asm volatile(                                                                                 \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.%5.%6.collector::a::%7 [%0], " form \
      ", %2, %3, p, %8;\n}" ::"r"(d.value),                                                     \
      operand, "l"(b.bits), "r"(instruction), "r"(uint32_t{accumulate}),                        \
      "C"(CtaGroupName<group>::text), "C"(Tcgen05KindName<kind>::text),                         \
      "C"(CollectorName<collector>::text), "n"(shift)                                           \
      : "memory")

// D = A B + (accumulate ? D * 2^-shift : 0), shift 0 to 15; kind f16 or tf32.
template <Tcgen05Kind kind, CtaGroup group, int shift, Collector collector = Collector::none,
          class Target = ThisTarget, class A>
HT_DEVICE void tcgen05_mma_scale_d(TensorAddress d, A a, Tcgen05Descriptor b, uint32_t instruction,
                                   bool accumulate, Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.mma exists on sm_100a only");
  static_assert(kOperandA<A> && kind <= Tcgen05Kind::tf32 && shift >= 0 && shift <= 15);
#if HT_GPU
  if constexpr (std::is_same_v<A, TensorAddress>) {
    HT_TCGEN05_MMA_SCALE_D("[%1]", "r"(a.value));
  } else {
    HT_TCGEN05_MMA_SCALE_D("%1", "l"(a.bits));
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.mma", site);
  sim::Tcgen05Mma mma{
      kind, static_cast<uint32_t>(group), d.value, model::operand_a(a), b, instruction, accumulate};
  mma.d_shift = shift;
  sim::tcgen05_mma(mma, site);
#endif
}
#undef HT_TCGEN05_MMA_SCALE_D

#define HT_TCGEN05_MMA_MASKED(form, operand, lanes, ...)                                        \
  asm volatile(                                                                                 \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.%5.%6.collector::a::%7 [%0], " form \
      ", %2, %3, " lanes ", p;\n}" ::"r"(d.value),                                              \
      operand, "l"(b.bits), "r"(instruction), "r"(uint32_t{accumulate}),                        \
      "C"(CtaGroupName<group>::text), "C"(Tcgen05KindName<kind>::text),                         \
      "C"(CollectorName<collector>::text), __VA_ARGS__                                          \
      : "memory")
#define HT_LANES4(i)                                                           \
  "r"(disabled.bits[i]), "r"(disabled.bits[i + 1]), "r"(disabled.bits[i + 2]), \
      "r"(disabled.bits[i + 3])

// As tcgen05_mma, but the lanes of D whose bit is set stay as they are.
template <Tcgen05Kind kind, CtaGroup group, Collector collector = Collector::none,
          class Target = ThisTarget, class A>
HT_DEVICE void tcgen05_mma_masked(TensorAddress d, A a, Tcgen05Descriptor b, uint32_t instruction,
                                  const DisabledLanes<group>& disabled, bool accumulate,
                                  Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.mma exists on sm_100a only");
  static_assert(kOperandA<A> && !tile::is_block_scaled(kind));
#if HT_GPU
  constexpr bool in_tensor = std::is_same_v<A, TensorAddress>;
  if constexpr (in_tensor && group == CtaGroup::one) {
    HT_TCGEN05_MMA_MASKED("[%1]", "r"(a.value), "{%8, %9, %10, %11}", HT_LANES4(0));
  } else if constexpr (in_tensor) {
    HT_TCGEN05_MMA_MASKED("[%1]", "r"(a.value), "{%8, %9, %10, %11, %12, %13, %14, %15}",
                          HT_LANES4(0), HT_LANES4(4));
  } else if constexpr (group == CtaGroup::one) {
    HT_TCGEN05_MMA_MASKED("%1", "l"(a.bits), "{%8, %9, %10, %11}", HT_LANES4(0));
  } else {
    HT_TCGEN05_MMA_MASKED("%1", "l"(a.bits), "{%8, %9, %10, %11, %12, %13, %14, %15}", HT_LANES4(0),
                          HT_LANES4(4));
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.mma", site);
  sim::Tcgen05Mma mma{
      kind, static_cast<uint32_t>(group), d.value, model::operand_a(a), b, instruction, accumulate};
  for (int i = 0; i < 4 * static_cast<int>(group); ++i) {
    mma.disabled_lanes[i] = disabled.bits[i];
  }
  sim::tcgen05_mma(mma, site);
#endif
}
#undef HT_LANES4
#undef HT_TCGEN05_MMA_MASKED

#define HT_TCGEN05_MMA_BLOCK_SCALE(form, operand)                                                  \
  asm volatile(                                                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"                                                  \
      "tcgen05.mma.%7.%8.block_scale.%9.collector::a::%10 [%0], " form                             \
      ", %2, %3, [%4], [%5], p;\n}" ::"r"(d.value),                                                \
      operand, "l"(b.bits), "r"(instruction), "r"(a_scales.value), "r"(b_scales.value),            \
      "r"(uint32_t{accumulate}), "C"(CtaGroupName<group>::text), "C"(Tcgen05KindName<kind>::text), \
      "C"(ScaleBlockName<block>::text), "C"(CollectorName<collector>::text)                        \
      : "memory")

// kind: mxf8f6f4, mxf4 (blocks of 32) or mxf4nvf4 (16 or 32). The scales lie in tensor memory as
// tile/scale_factor.h says; the instruction descriptor names the first byte of each.
template <Tcgen05Kind kind, ScaleBlock block, CtaGroup group, Collector collector = Collector::none,
          class Target = ThisTarget, class A>
HT_DEVICE void tcgen05_mma_block_scale(TensorAddress d, A a, Tcgen05Descriptor b,
                                       uint32_t instruction, TensorAddress a_scales,
                                       TensorAddress b_scales, bool accumulate,
                                       Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.mma exists on sm_100a only");
  static_assert(kOperandA<A> && tile::is_block_scaled(kind) &&
                (kind == Tcgen05Kind::mxf4nvf4 || block == ScaleBlock::block32));
#if HT_GPU
  if constexpr (std::is_same_v<A, TensorAddress>) {
    HT_TCGEN05_MMA_BLOCK_SCALE("[%1]", "r"(a.value));
  } else {
    HT_TCGEN05_MMA_BLOCK_SCALE("%1", "l"(a.bits));
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.mma", site);
  sim::Tcgen05Mma mma{
      kind, static_cast<uint32_t>(group), d.value, model::operand_a(a), b, instruction, accumulate};
  mma.a_scales = a_scales.value, mma.b_scales = b_scales.value;
  mma.scale_block = static_cast<int>(block);
  sim::tcgen05_mma(mma, site);
#endif
}
#undef HT_TCGEN05_MMA_BLOCK_SCALE

}  // namespace halftone::hw

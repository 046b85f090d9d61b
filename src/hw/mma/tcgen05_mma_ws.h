// tcgen05.mma.ws: the weight-stationary form, which keeps B in one of four buffers (sm_100a). One
// block; M 32, 64 or 128 and N 64, 128 or 256; D is split as tile::accumulator_of says.
#pragma once
#include "hw/mma/tcgen05_names.h"

namespace halftone::hw {

// Operand 1 is A: `form` and `operand` differ between the two memories it may be in.
#define HT_TCGEN05_MMA_WS(form, operand, columns, ...)                                      \
  asm volatile(                                                                             \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"                                           \
      "tcgen05.mma.ws.cta_group::1.%5.collector::b%6::%7 [%0], " form ", %2, %3, p" columns \
      ";\n}" ::"r"(d.value),                                                                \
      operand, "l"(b.bits), "r"(instruction), "r"(uint32_t{accumulate}),                    \
      "C"(Tcgen05KindName<kind>::text), "n"(buffer),                                        \
      "C"(CollectorName<collector>::text)__VA_ARGS__                                        \
      : "memory")

// kind: f16, tf32, f8f6f4 or i8.
template <Tcgen05Kind kind, int buffer = 0, Collector collector = Collector::none,
          class Target = ThisTarget, class A>
HT_DEVICE void tcgen05_mma_ws(TensorAddress d, A a, Tcgen05Descriptor b, uint32_t instruction,
                              bool accumulate, Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.mma.ws exists on sm_100a only");
  static_assert(kOperandA<A> && !tile::is_block_scaled(kind) && buffer >= 0 && buffer < 4);
#if HT_GPU
  if constexpr (std::is_same_v<A, TensorAddress>) {
    HT_TCGEN05_MMA_WS("[%1]", "r"(a.value), "");
  } else {
    HT_TCGEN05_MMA_WS("%1", "l"(a.bits), "");
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.mma.ws", site);
  sim::Tcgen05Mma mma{kind, 1, d.value, model::operand_a(a), b, instruction, accumulate};
  mma.weight_stationary = true;
  sim::tcgen05_mma(mma, site);
#endif
}

// The same with a zero-column mask: columns of B that count as zero, generated from the bits of
// `columns`. The simulator takes 0 (no column) alone: how the mask repeats is not verified.
template <Tcgen05Kind kind, int buffer = 0, Collector collector = Collector::none,
          class Target = ThisTarget, class A>
HT_DEVICE void tcgen05_mma_ws_zero_columns(TensorAddress d, A a, Tcgen05Descriptor b,
                                           uint32_t instruction, bool accumulate, uint64_t columns,
                                           Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.mma.ws exists on sm_100a only");
  static_assert(kOperandA<A> && !tile::is_block_scaled(kind) && buffer >= 0 && buffer < 4);
#if HT_GPU
  if constexpr (std::is_same_v<A, TensorAddress>) {
    HT_TCGEN05_MMA_WS("[%1]", "r"(a.value), ", %8", , "l"(columns));
  } else {
    HT_TCGEN05_MMA_WS("%1", "l"(a.bits), ", %8", , "l"(columns));
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.mma.ws", site);
  sim::Tcgen05Mma mma{kind, 1, d.value, model::operand_a(a), b, instruction, accumulate};
  mma.weight_stationary = true;
  mma.zero_columns = columns;
  sim::tcgen05_mma(mma, site);
#endif
}
#undef HT_TCGEN05_MMA_WS

}  // namespace halftone::hw

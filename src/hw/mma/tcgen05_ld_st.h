// tcgen05.ld and tcgen05.st: tensor memory to and from the registers of a warp (sm_100a).
//
// Warp w of a warpgroup reaches lanes 32 (w % 4) to 32 (w % 4) + 31; the lane of `address` lies
// there (at its start, or 16 further for shapes of 16 lanes). Which register moves which cell:
// tile::tensor_shape_cell. With Halves::packed a register holds the low halves of two neighbouring
// columns. Both are asynchronous: registers of a load may be read, and those of a store have
// arrived, only after the wait.
#pragma once
#include "hw/copy/tensor_address.h"
#include "tile/tensor_memory.h"

#if !defined(__CUDACC__)
#include "sim/memory/memory.h"
#include "sim/mma/tcgen05.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

using tile::TensorShape;
enum class Halves : uint8_t { whole, packed };

template <TensorShape>
struct TensorShapeName;
#define HT_TENSOR_SHAPE_NAME(shape, word)      \
  template <>                                  \
  struct TensorShapeName<TensorShape::shape> { \
    static constexpr char text[] = word;       \
  };
HT_TENSOR_SHAPE_NAME(s32x32b, "32x32b")
HT_TENSOR_SHAPE_NAME(s16x64b, "16x64b")
HT_TENSOR_SHAPE_NAME(s16x128b, "16x128b")
HT_TENSOR_SHAPE_NAME(s16x256b, "16x256b")
HT_TENSOR_SHAPE_NAME(s16x32bx2, "16x32bx2")
#undef HT_TENSOR_SHAPE_NAME

template <Halves>
struct HalvesName;
template <>
struct HalvesName<Halves::whole> {
  static constexpr char pack[] = "", unpack[] = "";
};
template <>
struct HalvesName<Halves::packed> {
  static constexpr char pack[] = ".pack::16b", unpack[] = ".unpack::16b";
};

// "%0, %1, ..., %(n-1)", and the operands r[0], ..., r[n-1] under constraint `c`.
#define HT_TEXT_10(t) \
  ",%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define HT_TEXT_1 "%0"
#define HT_TEXT_2 "%0,%1"
#define HT_TEXT_4 "%0,%1,%2,%3"
#define HT_TEXT_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define HT_TEXT_16 HT_TEXT_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define HT_TEXT_32 HT_TEXT_8 ",%8,%9" HT_TEXT_10(1) HT_TEXT_10(2) ",%30,%31"
#define HT_TEXT_64                                                           \
  HT_TEXT_8 ",%8,%9" HT_TEXT_10(1) HT_TEXT_10(2) HT_TEXT_10(3) HT_TEXT_10(4) \
      HT_TEXT_10(5) ",%60,%61,%62,%63"
#define HT_TEXT_128                                                                        \
  HT_TEXT_8 ",%8,%9" HT_TEXT_10(1) HT_TEXT_10(2) HT_TEXT_10(3) HT_TEXT_10(4) HT_TEXT_10(5) \
      HT_TEXT_10(6) HT_TEXT_10(7) HT_TEXT_10(8) HT_TEXT_10(9) HT_TEXT_10(10)               \
          HT_TEXT_10(11) ",%120,%121,%122,%123,%124,%125,%126,%127"
#define HT_REGISTERS_1(c, i) c(r[i])
#define HT_REGISTERS_2(c, i) HT_REGISTERS_1(c, i), HT_REGISTERS_1(c, (i) + 1)
#define HT_REGISTERS_4(c, i) HT_REGISTERS_2(c, i), HT_REGISTERS_2(c, (i) + 2)
#define HT_REGISTERS_8(c, i) HT_REGISTERS_4(c, i), HT_REGISTERS_4(c, (i) + 4)
#define HT_REGISTERS_16(c, i) HT_REGISTERS_8(c, i), HT_REGISTERS_8(c, (i) + 8)
#define HT_REGISTERS_32(c, i) HT_REGISTERS_16(c, i), HT_REGISTERS_16(c, (i) + 16)
#define HT_REGISTERS_64(c, i) HT_REGISTERS_32(c, i), HT_REGISTERS_32(c, (i) + 32)
#define HT_REGISTERS_128(c, i) HT_REGISTERS_64(c, i), HT_REGISTERS_64(c, (i) + 64)
// One assembly statement for each count of registers.
#define HT_FOR_EACH_COUNT(statement)                    \
  if constexpr (count == 1) statement(1, 2, 3, 4);      \
  if constexpr (count == 2) statement(2, 3, 4, 5);      \
  if constexpr (count == 4) statement(4, 5, 6, 7);      \
  if constexpr (count == 8) statement(8, 9, 10, 11);    \
  if constexpr (count == 16) statement(16, 17, 18, 19); \
  if constexpr (count == 32) statement(32, 33, 34, 35); \
  if constexpr (count == 64) statement(64, 65, 66, 67); \
  if constexpr (count == 128) statement(128, 129, 130, 131)

// Loads .num times the shape; for 16x32bx2, lanes 16 to 31 read `split` columns further right.
template <TensorShape shape, int num, Halves halves = Halves::whole, int split = 0,
          class Target = ThisTarget>
HT_DEVICE void tcgen05_ld(uint32_t (&r)[tile::tensor_shape_registers(shape, num)],
                          TensorAddress address, Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.ld exists on sm_100a only");
  static_assert(tile::valid_num(shape, num));
#if HT_GPU
  constexpr int count = tile::tensor_shape_registers(shape, num);
#define HT_LD(n, s, m, h)                                                                          \
  asm volatile("tcgen05.ld.sync.aligned.%" #s ".x%" #m "%" #h ".b32 {" HT_TEXT_##n "}, [%" #n "];" \
               : HT_REGISTERS_##n("=r", 0)                                                         \
               : "r"(address.value), "C"(TensorShapeName<shape>::text), "n"(num),                  \
                 "C"(HalvesName<halves>::pack)                                                     \
               : "memory")
#define HT_LD_SPLIT(n, s, m, h)                                                                   \
  asm volatile("tcgen05.ld.sync.aligned.16x32bx2.x%" #m "%" #h ".b32 {" HT_TEXT_##n "}, [%" #n    \
                                                                                    "], %" #s ";" \
               : HT_REGISTERS_##n("=r", 0)                                                        \
               : "r"(address.value), "n"(split), "n"(num), "C"(HalvesName<halves>::pack)          \
               : "memory")
  if constexpr (shape == TensorShape::s16x32bx2) {
    HT_FOR_EACH_COUNT(HT_LD_SPLIT);
  } else {
    HT_FOR_EACH_COUNT(HT_LD);
  }
#undef HT_LD_SPLIT
#undef HT_LD
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.ld", site);
  sim::tcgen05_ld({shape, num, split, halves == Halves::packed}, address.value, r, site);
#endif
}

// Stores .num times the shape; for 16x32bx2, lanes 16 to 31 write `split` columns further right.
template <TensorShape shape, int num, Halves halves = Halves::whole, int split = 0,
          class Target = ThisTarget>
HT_DEVICE void tcgen05_st(TensorAddress address,
                          const uint32_t (&r)[tile::tensor_shape_registers(shape, num)],
                          Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.st exists on sm_100a only");
  static_assert(tile::valid_num(shape, num));
#if HT_GPU
  constexpr int count = tile::tensor_shape_registers(shape, num);
#define HT_ST(n, s, m, h)                                                                     \
  asm volatile("tcgen05.st.sync.aligned.%" #s ".x%" #m "%" #h ".b32 [%" #n "], {" HT_TEXT_##n \
               "};" ::HT_REGISTERS_##n("r", 0),                                               \
               "r"(address.value), "C"(TensorShapeName<shape>::text), "n"(num),               \
               "C"(HalvesName<halves>::unpack)                                                \
               : "memory")
#define HT_ST_SPLIT(n, s, m, h)                                                          \
  asm volatile("tcgen05.st.sync.aligned.16x32bx2.x%" #m "%" #h ".b32 [%" #n "], %" #s    \
               ", {" HT_TEXT_##n "};" ::HT_REGISTERS_##n("r", 0),                        \
               "r"(address.value), "n"(split), "n"(num), "C"(HalvesName<halves>::unpack) \
               : "memory")
  if constexpr (shape == TensorShape::s16x32bx2) {
    HT_FOR_EACH_COUNT(HT_ST_SPLIT);
  } else {
    HT_FOR_EACH_COUNT(HT_ST);
  }
#undef HT_ST_SPLIT
#undef HT_ST
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.st", site);
  sim::tcgen05_st({shape, num, split, halves == Halves::packed}, address.value, r, site);
#endif
}

#undef HT_FOR_EACH_COUNT
#undef HT_TEXT_10
#undef HT_TEXT_1
#undef HT_TEXT_2
#undef HT_TEXT_4
#undef HT_TEXT_8
#undef HT_TEXT_16
#undef HT_TEXT_32
#undef HT_TEXT_64
#undef HT_TEXT_128
#undef HT_REGISTERS_1
#undef HT_REGISTERS_2
#undef HT_REGISTERS_4
#undef HT_REGISTERS_8
#undef HT_REGISTERS_16
#undef HT_REGISTERS_32
#undef HT_REGISTERS_64
#undef HT_REGISTERS_128

// All loads of the calling thread have arrived. The registers of a load go through the second form:
// the compiler then keeps every use of them behind the wait.
template <class Target = ThisTarget>
HT_DEVICE void tcgen05_wait_ld(Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.wait exists on sm_100a only");
#if HT_GPU
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.wait::ld", site);
  sim::tcgen05_wait(sim::self(), sim::Engine::tcgen05_ld, site);
#endif
}
template <int count, class Target = ThisTarget>
HT_DEVICE void tcgen05_wait_ld(uint32_t (&r)[count], Site site = Site::current()) {
  tcgen05_wait_ld<Target>(site);
#if HT_GPU
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(r[i])::"memory");
#else
  static_cast<void>(r);
#endif
}

// All stores of the calling thread have arrived in tensor memory.
template <class Target = ThisTarget>
HT_DEVICE void tcgen05_wait_st(Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.wait exists on sm_100a only");
#if HT_GPU
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.wait::st", site);
  sim::tcgen05_wait(sim::self(), sim::Engine::tcgen05_st, site);
#endif
}

}  // namespace halftone::hw

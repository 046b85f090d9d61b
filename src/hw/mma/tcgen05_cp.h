// tcgen05.cp: shared memory to tensor memory, asynchronously, by one thread (sm_100a).
#pragma once
#include "hw/copy/tensor_address.h"
#include "tile/descriptor.h"
#include "tile/scale_factor.h"

#if !defined(__CUDACC__)
#include "sim/mma/tcgen05.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

template <tile::TensorCopy>
struct TensorCopyName;
#define HT_TENSOR_COPY_NAME(shape, name)           \
  template <>                                      \
  struct TensorCopyName<tile::TensorCopy::shape> { \
    static constexpr char text[] = name;           \
  };
HT_TENSOR_COPY_NAME(s128x256b, "128x256b")
HT_TENSOR_COPY_NAME(s128x128b, "128x128b")
HT_TENSOR_COPY_NAME(s64x128b_02_13, "64x128b.warpx2::02_13")
HT_TENSOR_COPY_NAME(s64x128b_01_23, "64x128b.warpx2::01_23")
HT_TENSOR_COPY_NAME(s32x128b_warpx4, "32x128b.warpx4")
HT_TENSOR_COPY_NAME(s4x256b, "4x256b")
#undef HT_TENSOR_COPY_NAME

// What becomes of each 16 bytes of a line: they stay, or hold 16 values of this many bits and
// padding, each of which becomes a byte.
enum class TensorUnpack : uint8_t { none = 0, b4x16_p64 = 4, b6x16_p32 = 6 };
template <TensorUnpack>
struct TensorUnpackName;
#define HT_TENSOR_UNPACK_NAME(format, name)       \
  template <>                                     \
  struct TensorUnpackName<TensorUnpack::format> { \
    static constexpr char text[] = name;          \
  };
HT_TENSOR_UNPACK_NAME(none, "")
HT_TENSOR_UNPACK_NAME(b6x16_p32, ".b8x16.b6x16_p32")
HT_TENSOR_UNPACK_NAME(b4x16_p64, ".b8x16.b4x16_p64")
#undef HT_TENSOR_UNPACK_NAME

// Lines of `source` to the lanes of `destination` (shapes: tile/scale_factor.h).
// With two blocks, each copies from its own shared memory to its own tensor memory.
template <tile::TensorCopy shape, CtaGroup group, TensorUnpack unpack = TensorUnpack::none,
          class Target = ThisTarget>
HT_DEVICE void tcgen05_cp(TensorAddress destination, tile::Tcgen05Descriptor source,
                          Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.cp exists on sm_100a only");
#if HT_GPU
  asm volatile("tcgen05.cp.%2.%3%4 [%0], %1;" ::"r"(destination.value), "l"(source.bits),
               "C"(CtaGroupName<group>::text), "C"(TensorCopyName<shape>::text),
               "C"(TensorUnpackName<unpack>::text)
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.cp", site);
  sim::tcgen05_cp(static_cast<uint32_t>(group), shape, static_cast<uint32_t>(unpack),
                  destination.value, source, site);
#endif
}

}  // namespace halftone::hw

// The words of tcgen05.mma (sm_100a) and the kinds of operand A.
#pragma once
#include <type_traits>

#include "hw/copy/tensor_address.h"
#include "tile/descriptor.h"
#include "tile/tcgen05_instruction.h"

#if !defined(__CUDACC__)
#include "sim/mma/tcgen05.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

using tile::Tcgen05Descriptor;
using tile::Tcgen05Kind;

// What the instruction keeps of A (of B, in one of four buffers, for .ws) for the next one. A hint:
// no value of D depends on it.
enum class Collector : uint8_t { none, fill, use, lastuse, discard };
// Elements along K that one scale is for: 16 or 32 of FP4, 32 of FP8 and FP6.
enum class ScaleBlock : uint8_t { block16 = 16, block32 = 32 };

template <Tcgen05Kind>
struct Tcgen05KindName;
template <Collector>
struct CollectorName;
template <ScaleBlock>
struct ScaleBlockName;

#define HT_NAME(type, word)              \
  template <>                            \
  struct type {                          \
    static constexpr char text[] = word; \
  };
// clang-format off
HT_NAME(Tcgen05KindName<Tcgen05Kind::f16>, "kind::f16")
HT_NAME(Tcgen05KindName<Tcgen05Kind::tf32>, "kind::tf32")
HT_NAME(Tcgen05KindName<Tcgen05Kind::f8f6f4>, "kind::f8f6f4")
HT_NAME(Tcgen05KindName<Tcgen05Kind::i8>, "kind::i8")
HT_NAME(Tcgen05KindName<Tcgen05Kind::mxf8f6f4>, "kind::mxf8f6f4")
HT_NAME(Tcgen05KindName<Tcgen05Kind::mxf4>, "kind::mxf4")
HT_NAME(Tcgen05KindName<Tcgen05Kind::mxf4nvf4>, "kind::mxf4nvf4")
HT_NAME(CollectorName<Collector::none>, "discard")  // what the instruction does unasked
HT_NAME(CollectorName<Collector::fill>, "fill")
HT_NAME(CollectorName<Collector::use>, "use")
HT_NAME(CollectorName<Collector::lastuse>, "lastuse")
HT_NAME(CollectorName<Collector::discard>, "discard")
HT_NAME(ScaleBlockName<ScaleBlock::block16>, "block16")
HT_NAME(ScaleBlockName<ScaleBlock::block32>, "block32")
// clang-format on
#undef HT_NAME

// Lanes of D that an instruction leaves alone, a bit each: four registers for a block, eight for
// two (the first four are those of the block of even rank).
template <CtaGroup group>
struct DisabledLanes {
  uint32_t bits[4 * static_cast<int>(group)] = {};
};

// A in shared or in tensor memory.
template <class A>
inline constexpr bool kOperandA =
    std::is_same_v<A, Tcgen05Descriptor> || std::is_same_v<A, TensorAddress>;

#if !defined(__CUDACC__)
namespace model {
inline sim::Tcgen05Mma::OperandA operand_a(Tcgen05Descriptor a) { return {false, a.bits}; }
inline sim::Tcgen05Mma::OperandA operand_a(TensorAddress a) { return {true, a.value}; }
}  // namespace model
#endif

}  // namespace halftone::hw

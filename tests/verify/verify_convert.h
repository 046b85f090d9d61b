// Kernels of verify.h around conversions from FP32: every float, or every option-th, through the
// instruction and through the simulator's model, which the GPU evaluates itself: no table of four
// thousand million answers has to be made elsewhere.
#pragma once
#include "hw/convert/convert.h"
#include "hw/convert/convert_integer.h"
#include "hw/memory.h"
#include "hw/thread.h"
#include "sim/numerics/convert.h"
#include "verify.h"

namespace halftone::verify {

// d[thread]: how many answers differ; d[threads + thread]: an input of which they do.
template <class Conversion>
struct EveryFloat {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::block_index().x * kThreads + hw::thread_index().x;
    const uint32_t threads = hw::grid_size().x * kThreads;
    uint32_t wrong = 0, example = 0;
    for (uint64_t i = uint64_t{thread} * p.option; i < uint64_t{1} << 32;
         i += uint64_t{threads} * p.option) {
      const float x = std::bit_cast<float>(static_cast<uint32_t>(i));
      if (Conversion::chip(x) == Conversion::model(x)) continue;
      wrong++;
      example = static_cast<uint32_t>(i);
    }
    hw::store_global(p.d + thread, wrong);
    hw::store_global(p.d + threads + thread, example);
  }
};

using hw::IntegerRounding;
using hw::Rounding;
using hw::Type;
HT_HOST_DEVICE uint32_t word(int32_t value) { return static_cast<uint32_t>(value); }
HT_HOST_DEVICE uint32_t pair16(uint32_t low, uint32_t high) { return low | high << 16; }

// X(name, instruction, model)
#define HT_VERIFY_CONVERT(X)                                                                       \
  X(f16_rn, hw::cvt_f16(x), sim::cvt_f16(x))                                                       \
  X(f16_rz, hw::cvt_f16<Rounding::rz>(x), sim::cvt_f16(x, sim::Round::zero))                       \
  X(f16_rn_relu, (hw::cvt_f16<Rounding::rn, true>(x)),                                             \
    sim::cvt_f16(x, sim::Round::nearest_even, true))                                               \
  X(bf16_rn, hw::cvt_bf16(x), sim::cvt_bf16(x))                                                    \
  X(bf16_rz, hw::cvt_bf16<Rounding::rz>(x), sim::cvt_bf16(x, sim::Round::zero))                    \
  X(bf16_rz_relu, (hw::cvt_bf16<Rounding::rz, true>(x)), sim::cvt_bf16(x, sim::Round::zero, true)) \
  X(f16x2_rn, hw::cvt_f16x2(x, 1.0f), pair16(sim::cvt_f16(x), 0x3c00))                             \
  X(f16x2_rz_relu, (hw::cvt_f16x2<Rounding::rz, true>(1.0f, x)),                                   \
    pair16(0x3c00, sim::cvt_f16(x, sim::Round::zero, true)))                                       \
  X(bf16x2_rn, hw::cvt_bf16x2(x, 1.0f), pair16(sim::cvt_bf16(x), 0x3f80))                          \
  X(bf16x2_rn_relu, (hw::cvt_bf16x2<Rounding::rn, true>(1.0f, x)),                                 \
    pair16(0x3f80, sim::cvt_bf16(x, sim::Round::nearest_even, true)))                              \
  X(bf16x2_rz, hw::cvt_bf16x2<Rounding::rz>(x, 1.0f),                                              \
    pair16(sim::cvt_bf16(x, sim::Round::zero), 0x3f80))                                            \
  X(e4m3x2, hw::cvt_fp8x2<Type::e4m3>(x, 1.0f), word(sim::cvt_e4m3(x) | 0x3800))                   \
  X(e4m3x2_relu, (hw::cvt_fp8x2<Type::e4m3, true>(1.0f, x)),                                       \
    word(sim::cvt_e4m3(x, true) << 8 | 0x38))                                                      \
  X(e5m2x2, hw::cvt_fp8x2<Type::e5m2>(x, 1.0f), word(sim::cvt_e5m2(x) | 0x3c00))                   \
  X(e5m2x2_relu, (hw::cvt_fp8x2<Type::e5m2, true>(1.0f, x)),                                       \
    word(sim::cvt_e5m2(x, true) << 8 | 0x3c))                                                      \
  X(tf32_rna, hw::cvt_rna_tf32(x), sim::cvt_tf32(x))                                               \
  X(tf32_rn, hw::cvt_tf32(x), sim::cvt_tf32(x, sim::RoundTf32::nearest_even))                      \
  X(tf32_rz, hw::cvt_tf32<Rounding::rz>(x), sim::cvt_tf32(x, sim::RoundTf32::zero))                \
  X(tf32_rn_relu, (hw::cvt_tf32<Rounding::rn, true>(x)),                                           \
    sim::cvt_tf32(x, sim::RoundTf32::nearest_even, true))                                          \
  X(s32_rni, word(hw::cvt_s32(x)), word(sim::cvt_s32(x, sim::RoundInteger::nearest_even)))         \
  X(s32_rzi, word(hw::cvt_s32<IntegerRounding::rzi>(x)),                                           \
    word(sim::cvt_s32(x, sim::RoundInteger::zero)))                                                \
  X(s32_rmi, word(hw::cvt_s32<IntegerRounding::rmi>(x)),                                           \
    word(sim::cvt_s32(x, sim::RoundInteger::down)))                                                \
  X(s32_rpi, word(hw::cvt_s32<IntegerRounding::rpi>(x)),                                           \
    word(sim::cvt_s32(x, sim::RoundInteger::up)))                                                  \
  X(u32_rni, hw::cvt_u32(x), sim::cvt_u32(x, sim::RoundInteger::nearest_even))                     \
  X(u32_rzi, hw::cvt_u32<IntegerRounding::rzi>(x), sim::cvt_u32(x, sim::RoundInteger::zero))       \
  X(s8_rni, word(hw::cvt_s8(x)), word(sim::cvt_s8(x, sim::RoundInteger::nearest_even)))            \
  X(s8_rzi, word(hw::cvt_s8<IntegerRounding::rzi>(x)),                                             \
    word(sim::cvt_s8(x, sim::RoundInteger::zero)))                                                 \
  X(u8_rni, word(hw::cvt_u8(x)), word(sim::cvt_u8(x, sim::RoundInteger::nearest_even)))

#define HT_STRUCT(name, instruction, answer)                                           \
  struct name {                                                                        \
    HT_DEVICE static uint32_t chip(float x) { return instruction; }                    \
    HT_DEVICE static uint32_t model(float x) { return static_cast<uint32_t>(answer); } \
  };
namespace conversion {
HT_VERIFY_CONVERT(HT_STRUCT)
}  // namespace conversion
#undef HT_STRUCT

extern const Entries kConvertEntries;

}  // namespace halftone::verify

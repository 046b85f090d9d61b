// Kernels of verify.h around mma.sync: one warp computes one case. Rows of A and of B are 8 words,
// or 4 for the shorter k of 16-bit elements.
#pragma once
#include <type_traits>

#include "hw/memory.h"
#include "hw/mma/mma.h"
#include "hw/thread.h"
#include "verify.h"

namespace halftone::verify {

template <hw::Type kA, hw::Type kB, class D, bool kSaturate = false, uint32_t kRowWords = 8>
struct MmaSync {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  static constexpr uint32_t kSharedBytes = 0;
  static constexpr uint32_t kRegisters = std::is_same_v<D, uint32_t> ? 2 : 4;

  HT_DEVICE static void run(const Params& p) {
    const uint32_t lane = hw::lane_index(), block = hw::block_index().x;
    uint32_t a[kRowWords / 2], b[kRowWords / 4];
    D c[kRegisters], d[kRegisters];
    for (uint32_t r = 0; r < kRowWords / 2; r++)
      a[r] = hw::load_global(p.a + (block * 16 + lane / 4 + 8 * (r & 1)) * kRowWords + lane % 4 +
                             4 * (r >> 1));
    for (uint32_t r = 0; r < kRowWords / 4; r++)
      b[r] = hw::load_global(p.b + (block * 8 + lane / 4) * kRowWords + lane % 4 + 4 * r);
    for (uint32_t i = 0; i < kRegisters; i++)
      c[i] = std::bit_cast<D>(hw::load_global(p.c + at(block, lane, i)));
    if constexpr (kA == hw::Type::tf32 || kRowWords == 4) {
      hw::mma_m16n8k8<kA>(d, a, b, c);
    } else if constexpr (hw::bits_of(kA) == 4) {
      hw::mma_m16n8k64<kA, kB>(d, a, b, c);
    } else if constexpr (hw::bits_of(kA) == 16) {
      hw::mma_m16n8k16<kA>(d, a, b, c);
    } else if constexpr (std::is_same_v<D, int32_t>) {
      hw::mma_m16n8k32<kA, kB, kSaturate>(d, a, b, c);
    } else {
      hw::mma_m16n8k32<kA, kB>(d, a, b, c);
    }
    for (uint32_t i = 0; i < kRegisters; i++)
      hw::store_global(p.d + at(block, lane, i), std::bit_cast<uint32_t>(d[i]));
  }

  // The word of C and D that register i holds.
  HT_DEVICE static uint32_t at(uint32_t block, uint32_t lane, uint32_t i) {
    if (kRegisters == 2) return block * 64 + (lane / 4 + 8 * i) * 4 + lane % 4;
    return block * 128 + (lane / 4 + 8 * (i >> 1)) * 8 + lane % 4 * 2 + (i & 1);
  }
};

using hw::Type;
// X(kernel, A, B, accumulator, bytes of a row, suffix of the name)
#define HT_VERIFY_MMA(X)                                                            \
  X((MmaSync<Type::bf16, Type::bf16, float>), bf16, bf16, f32, 32, "")              \
  X((MmaSync<Type::f16, Type::f16, float>), f16, f16, f32, 32, "")                  \
  X((MmaSync<Type::f16, Type::f16, uint32_t>), f16, f16, f16, 32, "")               \
  X((MmaSync<Type::bf16, Type::bf16, float, false, 4>), bf16, bf16, f32, 16, " k8") \
  X((MmaSync<Type::f16, Type::f16, float, false, 4>), f16, f16, f32, 16, " k8")     \
  X((MmaSync<Type::tf32, Type::tf32, float>), tf32, tf32, f32, 32, "")              \
  X((MmaSync<Type::s8, Type::s8, int32_t>), s8, s8, s32, 32, "")                    \
  X((MmaSync<Type::u8, Type::u8, int32_t>), u8, u8, s32, 32, "")                    \
  X((MmaSync<Type::s8, Type::u8, int32_t>), s8, u8, s32, 32, "")                    \
  X((MmaSync<Type::u8, Type::s8, int32_t>), u8, s8, s32, 32, "")                    \
  X((MmaSync<Type::s8, Type::s8, int32_t, true>), s8, s8, s32, 32, " satfinite")    \
  X((MmaSync<Type::s4, Type::s4, int32_t>), s8, s8, s32, 32, " of nibbles")         \
  X((MmaSync<Type::u4, Type::s4, int32_t>), u8, s8, s32, 32, " of nibbles")         \
  X((MmaSync<Type::e4m3, Type::e4m3, float>), e4m3, e4m3, f32, 32, "")              \
  X((MmaSync<Type::e4m3, Type::e5m2, float>), e4m3, e5m2, f32, 32, "")              \
  X((MmaSync<Type::e5m2, Type::e4m3, float>), e5m2, e4m3, f32, 32, "")              \
  X((MmaSync<Type::e5m2, Type::e5m2, float>), e5m2, e5m2, f32, 32, "")

extern const Entries kMmaEntries;

}  // namespace halftone::verify

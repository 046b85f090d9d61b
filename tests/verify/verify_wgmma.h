// Kernels of verify.h around wgmma: one warpgroup computes one case of 64 x N, with K as long as a
// line of B's swizzle: several instructions in a chain, each a step of 32 bytes along K.
#pragma once
#include <type_traits>

#include "hw/barrier.h"
#include "hw/fence.h"
#include "hw/memory.h"
#include "hw/mma/wgmma.h"
#include "hw/thread.h"
#include "verify.h"

namespace halftone::verify {

// K of a case, in bytes of a row: what a swizzled line holds, and 32 where lines run along N.
HT_HOST_DEVICE uint32_t wgmma_row_bytes(tile::Swizzle swizzle, tile::Major major) {
  return major == tile::Major::mn || swizzle == tile::Swizzle::none ? 32 : tile::span(swizzle);
}

template <hw::Type kA, hw::Type kB, class D, uint32_t kN, bool kRegisterA = false,
          tile::Swizzle kSwizzle = tile::Swizzle::b128, tile::Major kMajor = tile::Major::k>
struct Wgmma {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  static constexpr bool kInRegisters = kRegisterA;
  static constexpr tile::Swizzle kLayout = kSwizzle;
  static constexpr bool kAlongK = kMajor == tile::Major::k;
  static constexpr uint32_t kBits = hw::bits_of(kA), kWordElements = 32 / kBits;
  static constexpr uint32_t kRowBytes = wgmma_row_bytes(kSwizzle, kMajor);
  static constexpr uint32_t kK = kRowBytes * 8 / kBits, kStepK = 256 / kBits;
  static constexpr uint32_t kRegisters = std::is_same_v<D, uint32_t> ? kN / 4 : kN / 2;
  // Of A (64 rows) or B.
  static HT_HOST_DEVICE tile::SharedTile tile_of(uint32_t rows) {
    return {kMajor, kSwizzle, kBits, rows, kK};
  }
  static constexpr uint32_t kOffsetB = (64 * kRowBytes + 1023) / 1024 * 1024;
  static constexpr uint32_t kSharedBytes = kOffsetB + kN * kRowBytes;

  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x, block = hw::block_index().x;
    const hw::SharedAddress shared = hw::shared_memory_base();
    constexpr tile::SharedTile tile_a = tile_of(64), tile_b = tile_of(kN);
    static_assert(tile_a.valid() && tile_b.valid());
    const uint32_t base_a = shared.value, base_b = shared.value + kOffsetB;
    const uint32_t* a = p.a + block * 64 * kRowBytes / 4;
    copy<64>(a, tile_a, base_a, thread);
    copy<kN>(p.b + block * kN * kRowBytes / 4, tile_b, base_b, thread);
    hw::fence_proxy_async_shared();
    hw::barrier_sync();

    constexpr uint32_t kWords = 64 * kRegisters * 2;  // of D: two threads a register pair
    const uint32_t* c = p.c + block * kWords;
    D d[kRegisters];
    for (uint32_t i = 0; i < kRegisters; i++)
      d[i] = std::bit_cast<D>(hw::load_global(c + at(thread, i)));
    uint32_t fragment[kK / kStepK][4];
    if constexpr (kRegisterA) {
      for (uint32_t step = 0; step < kK / kStepK; step++)
        for (uint32_t r = 0; r < 4; r++)
          fragment[step][r] = hw::load_global(
              a + (thread / 32 * 16 + thread % 32 / 4 + 8 * (r & 1)) * (kRowBytes / 4) + step * 8 +
              thread % 4 + 4 * (r >> 1));
    }
    const auto in_a = tile::WgmmaDescriptor::of(tile_a, base_a);
    const auto in_b = tile::WgmmaDescriptor::of(tile_b, base_b);
    hw::hold_registers(d);
    hw::wgmma_fence();
    for (uint32_t step = 0; step < kK / kStepK; step++) {
      const auto b = in_b.advanced(tile_b.advance(0, step * kStepK));
      if constexpr (kRegisterA) {
        hw::wgmma<kA, kB, kMajor>(d, fragment[step], b, true);
      } else {
        hw::wgmma<kA, kB, kMajor, kMajor>(d, in_a.advanced(tile_a.advance(0, step * kStepK)), b,
                                          true);
      }
    }
    hw::wgmma_commit();
    hw::wgmma_wait<0>();
    hw::hold_registers(d);
    for (uint32_t i = 0; i < kRegisters; i++)
      hw::store_global(p.d + block * kWords + at(thread, i), std::bit_cast<uint32_t>(d[i]));
  }

  // Rows of `kRowBytes` to where the operand's elements belong: words stay together along K,
  // elements of 16 bits are taken apart where N is contiguous.
  template <uint32_t kRows>
  HT_DEVICE static void copy(const uint32_t* from, const tile::SharedTile& to, uint32_t base,
                             uint32_t thread) {
    for (uint32_t i = thread; i < kRows * kRowBytes / 4; i += kThreads) {
      const uint32_t row = i / (kRowBytes / 4), k = i % (kRowBytes / 4) * kWordElements;
      const uint32_t word = hw::load_global(from + i);
      if constexpr (kMajor == tile::Major::k) {
        hw::store_shared(hw::SharedAddress{to.address(base, row, k)}, word);
      } else {
        hw::store_shared(hw::SharedAddress{to.address(base, row, k)},
                         static_cast<uint16_t>(word & 0xffff));
        hw::store_shared(hw::SharedAddress{to.address(base, row, k + 1)},
                         static_cast<uint16_t>(word >> 16));
      }
    }
  }

  // The word of C and D, 64 rows of N or N / 2, that register i holds.
  HT_DEVICE static uint32_t at(uint32_t thread, uint32_t i) {
    const bool pairs = std::is_same_v<D, uint32_t>;
    const uint32_t element = pairs ? 2 * i : i;
    const uint32_t row = thread / 32 * 16 + thread % 32 / 4 + 8 * (element >> 1 & 1);
    const uint32_t column = (element >> 2) * 8 + thread % 4 * 2 + (element & 1);
    return pairs ? row * (kN / 2) + column / 2 : row * kN + column;
  }
};

using hw::Type;
using tile::Major;
using tile::Swizzle;
// X(kernel, n, A, B, accumulator, bytes of a row)
#define HT_VERIFY_WGMMA(X)                                                                         \
  X((Wgmma<Type::bf16, Type::bf16, float, 8>), 8, bf16, bf16, f32, 128)                            \
  X((Wgmma<Type::bf16, Type::bf16, float, 136>), 136, bf16, bf16, f32, 128)                        \
  X((Wgmma<Type::bf16, Type::bf16, float, 256>), 256, bf16, bf16, f32, 128)                        \
  X((Wgmma<Type::bf16, Type::bf16, float, 64, false, Swizzle::none>), 64, bf16, bf16, f32, 32)     \
  X((Wgmma<Type::bf16, Type::bf16, float, 64, false, Swizzle::b32>), 64, bf16, bf16, f32, 32)      \
  X((Wgmma<Type::bf16, Type::bf16, float, 64, false, Swizzle::b64>), 64, bf16, bf16, f32, 64)      \
  X((Wgmma<Type::bf16, Type::bf16, float, 128, true>), 128, bf16, bf16, f32, 128)                  \
  X((Wgmma<Type::bf16, Type::bf16, float, 128, false, Swizzle::b128, Major::mn>), 128, bf16, bf16, \
    f32, 32)                                                                                       \
  X((Wgmma<Type::bf16, Type::bf16, float, 64, false, Swizzle::b64, Major::mn>), 64, bf16, bf16,    \
    f32, 32)                                                                                       \
  X((Wgmma<Type::bf16, Type::bf16, float, 64, false, Swizzle::b32, Major::mn>), 64, bf16, bf16,    \
    f32, 32)                                                                                       \
  X((Wgmma<Type::bf16, Type::bf16, float, 64, false, Swizzle::none, Major::mn>), 64, bf16, bf16,   \
    f32, 32)                                                                                       \
  X((Wgmma<Type::bf16, Type::bf16, float, 64, true, Swizzle::b128, Major::mn>), 64, bf16, bf16,    \
    f32, 32)                                                                                       \
  X((Wgmma<Type::f16, Type::f16, float, 64>), 64, f16, f16, f32, 128)                              \
  X((Wgmma<Type::f16, Type::f16, float, 64, true>), 64, f16, f16, f32, 128)                        \
  X((Wgmma<Type::f16, Type::f16, uint32_t, 64>), 64, f16, f16, f16, 128)                           \
  X((Wgmma<Type::f16, Type::f16, uint32_t, 256, true>), 256, f16, f16, f16, 128)                   \
  X((Wgmma<Type::tf32, Type::tf32, float, 64>), 64, tf32, tf32, f32, 128)                          \
  X((Wgmma<Type::tf32, Type::tf32, float, 64, true>), 64, tf32, tf32, f32, 128)                    \
  X((Wgmma<Type::e4m3, Type::e4m3, float, 64>), 64, e4m3, e4m3, f32, 128)                          \
  X((Wgmma<Type::e4m3, Type::e4m3, float, 256, true>), 256, e4m3, e4m3, f32, 128)                  \
  X((Wgmma<Type::e4m3, Type::e5m2, float, 64>), 64, e4m3, e5m2, f32, 128)                          \
  X((Wgmma<Type::e5m2, Type::e4m3, float, 96>), 96, e5m2, e4m3, f32, 128)                          \
  X((Wgmma<Type::e5m2, Type::e5m2, float, 64, true>), 64, e5m2, e5m2, f32, 128)                    \
  X((Wgmma<Type::e4m3, Type::e4m3, uint32_t, 64>), 64, e4m3, e4m3, f16, 128)                       \
  X((Wgmma<Type::e5m2, Type::e4m3, uint32_t, 64, true>), 64, e5m2, e4m3, f16, 128)                 \
  X((Wgmma<Type::s8, Type::s8, int32_t, 64>), 64, s8, s8, s32, 128)                                \
  X((Wgmma<Type::s8, Type::s8, int32_t, 256, true>), 256, s8, s8, s32, 128)                        \
  X((Wgmma<Type::u8, Type::u8, int32_t, 24>), 24, u8, u8, s32, 128)                                \
  X((Wgmma<Type::s8, Type::u8, int32_t, 64>), 64, s8, u8, s32, 128)                                \
  X((Wgmma<Type::u8, Type::s8, int32_t, 64, true>), 64, u8, s8, s32, 128)

extern const Entries kWgmmaEntries;

}  // namespace halftone::verify

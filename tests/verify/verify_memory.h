// Kernels of verify.h around shared memory: ldmatrix and stmatrix, where wgmma and tensor copies
// put the swizzle, mbarrier bytes, elect.
#pragma once
#include "hw/barrier.h"
#include "hw/bits.h"
#include "hw/copy/tma.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/mma/ldmatrix.h"
#include "hw/mma/stmatrix.h"
#include "hw/mma/wgmma.h"
#include "hw/thread.h"
#include "hw/vote.h"
#include "hw/warp.h"
#include "verify.h"

namespace halftone::verify {

// 512 rows of 16 bytes from a; d = the fragments of rows that b names.
template <uint32_t kCount, bool kTrans>
struct LoadMatrix {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1, kSharedBytes = 8192;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t lane = hw::lane_index(), block = hw::block_index().x;
    const hw::SharedAddress shared = hw::shared_memory_base();
    for (uint32_t i = lane; i < 2048; i += 32)
      hw::store_shared(shared + 4 * i, hw::load_global(p.a + block * 2048 + i));
    hw::barrier_sync();
    const hw::SharedAddress row = shared + (hw::load_global(p.b + block * 32 + lane) & 511) * 16;
    uint32_t matrices[kCount];
    if constexpr (kTrans) {
      hw::ldmatrix_trans(matrices, row);
    } else {
      hw::ldmatrix(matrices, row);
    }
    for (uint32_t i = 0; i < kCount; i++)
      hw::store_global(p.d + (block * 32 + lane) * 4 + i, matrices[i]);
  }
};

// Fragments from a to rows of 512 that b and c name, all different; d = what is in shared memory.
template <uint32_t kCount, bool kTrans>
struct StoreMatrix {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1, kSharedBytes = 8192;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t lane = hw::lane_index(), block = hw::block_index().x;
    const hw::SharedAddress shared = hw::shared_memory_base();
    for (uint32_t i = lane; i < 2048; i += 32) hw::store_shared(shared + 4 * i, uint32_t{0});
    hw::barrier_sync();
    const uint32_t first = hw::load_global(p.b + block), step = hw::load_global(p.c + block) | 1;
    uint32_t matrices[kCount];
    for (uint32_t i = 0; i < kCount; i++)
      matrices[i] = hw::load_global(p.a + block * 2048 + lane * 4 + i);
    const hw::SharedAddress row = shared + ((first + lane * step) & 511) * 16;
    if constexpr (kTrans) {
      hw::stmatrix_trans(row, matrices);
    } else {
      hw::stmatrix(row, matrices);
    }
    hw::barrier_sync();
    for (uint32_t i = lane; i < 2048; i += 32)
      hw::store_global(p.d + block * 2048 + i, hw::load_shared<uint32_t>(shared + 4 * i));
  }
};

// D = A B of bf16 64 x 64 x 16 where the pattern of B starts `shift` lines of 128 bytes after its
// boundary. option: shift, 8 if the data lies as if the pattern started on a boundary (else the
// absolute address swizzles it), 16 * base_offset of the descriptor.
struct ShiftedPattern {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1, kSharedBytes = 8192 + 10240;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x, shift = p.option & 7;
    const bool relative = (p.option & 8) != 0;
    const hw::SharedAddress shared = hw::shared_memory_base();
    for (uint32_t i = thread; i < kSharedBytes / 4; i += kThreads)
      hw::store_shared(shared + 4 * i, uint32_t{0});
    hw::barrier_sync();
    const uint32_t a = shared.value, b = shared.value + 8192 + 128 * shift;
    for (uint32_t i = thread; i < 512; i += kThreads) {
      const uint32_t offset = i / 8 * 128 + i % 8 * 4;
      hw::store_shared(hw::SharedAddress{tile::swizzled(tile::Swizzle::b128, a + offset)},
                       hw::load_global(p.a + i));
      const uint32_t at = relative ? b + tile::swizzled(tile::Swizzle::b128, offset)
                                   : tile::swizzled(tile::Swizzle::b128, b + offset);
      hw::store_shared(hw::SharedAddress{at}, hw::load_global(p.b + i));
    }
    hw::fence_proxy_async_shared();
    hw::barrier_sync();
    tile::OperandFields fields{a, 16, 1024, 0, tile::Swizzle::b128};
    const auto in_a = tile::WgmmaDescriptor::encode(fields);
    fields.start = b;
    fields.base_offset = p.option >> 4;
    const auto in_b = tile::WgmmaDescriptor::encode(fields);
    float d[32] = {};
    hw::hold_registers(d);
    hw::wgmma_fence();
    hw::wgmma<hw::Type::bf16>(d, in_a, in_b, false);
    hw::wgmma_commit();
    hw::wgmma_wait<0>();
    hw::hold_registers(d);
    for (uint32_t i = 0; i < 32; i++) {
      const uint32_t row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i >> 1 & 1);
      const uint32_t column = (i >> 2) * 8 + thread % 4 * 2 + (i & 1);
      hw::store_global(p.d + row * 64 + column, std::bit_cast<uint32_t>(d[i]));
    }
  }
};

// One box into shared memory that was full of 0xEE, `shift` bytes after the pattern's boundary.
// d = 10 KB of shared memory, then whether the box's bytes were counted.
struct TensorBoxLoad {
  struct Params {
    hw::TensorMap map;
    uint32_t* d;
    int32_t x, y;
    uint32_t shift, bytes;
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1, kWords = 2560;
  static constexpr uint32_t kSharedBytes = kWords * 4 + 1024;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress shared = hw::shared_memory_base();
    const hw::Mbarrier full{shared + kWords * 4};
    for (uint32_t i = thread; i < kWords; i += kThreads)
      hw::store_shared(shared + 4 * i, 0xEEEEEEEEu);
    if (thread == 0) {
      hw::mbarrier_init(full, 1);
      hw::fence_mbarrier_init();
    }
    hw::fence_proxy_async_shared();
    hw::barrier_sync();
    if (thread == 0) {
      const int32_t at[2] = {p.x, p.y};
      hw::mbarrier_arrive_expect_tx(full, p.bytes);
      hw::tensor_load(shared + p.shift, &p.map, at, full);
    }
    uint32_t done = 0;  // bounded: a wrong count of bytes must not hang a GPU
    for (uint32_t i = 0; i < 2000 && done == 0; i++) done = hw::mbarrier_try_wait(full, 0) ? 1 : 0;
    hw::barrier_sync();
    for (uint32_t i = thread; i < kWords; i += kThreads)
      hw::store_global(p.d + i, hw::load_shared<uint32_t>(shared + 4 * i));
    if (thread == 0) hw::store_global(p.d + kWords, done);
  }
};

// Bytes complete before they are expected: d[0] whether the phase ended then, d[1] in the end.
struct EarlyBytes {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1, kSharedBytes = 1024;
  HT_DEVICE static void run(const Params& p) {
    if (hw::thread_index().x != 0) return;
    const hw::Mbarrier barrier{hw::shared_memory_base()};
    hw::mbarrier_init(barrier, 1);
    hw::mbarrier_complete_tx(barrier, 64);
    const uint32_t early = hw::mbarrier_test_wait(barrier, 0) ? 1 : 0;
    hw::mbarrier_arrive_expect_tx(barrier, 64);
    uint32_t done = 0;
    for (uint32_t i = 0; i < 2000 && done == 0; i++)
      done = hw::mbarrier_try_wait(barrier, 0) ? 1 : 0;
    hw::store_global(p.d, early);
    hw::store_global(p.d + 1, done);
  }
};

// d[i] = the lane elected of mask a[i], d[8 + i] = how many lanes were told so.
struct Elect {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1, kSharedBytes = 0;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t lane = hw::lane_index();
    for (uint32_t i = 0; i < 8; i++) {
      const uint32_t mask = hw::load_global(p.a + i);
      bool leads = false;
      if ((mask >> lane & 1) != 0) leads = hw::elect_one(mask);
      const uint32_t leaders = hw::vote_ballot(leads);
      if (lane == 0) {
        hw::store_global(p.d + i, hw::bfind(leaders));
        hw::store_global(p.d + 8 + i, hw::popc(leaders));
      }
      hw::warp_sync();
    }
  }
};

#define HT_VERIFY_MEMORY(X)  \
  X((LoadMatrix<1, false>))  \
  X((LoadMatrix<2, false>))  \
  X((LoadMatrix<4, false>))  \
  X((LoadMatrix<1, true>))   \
  X((LoadMatrix<2, true>))   \
  X((LoadMatrix<4, true>))   \
  X((StoreMatrix<1, false>)) \
  X((StoreMatrix<2, false>)) \
  X((StoreMatrix<4, false>)) \
  X((StoreMatrix<1, true>))  \
  X((StoreMatrix<2, true>))  \
  X((StoreMatrix<4, true>)) X((ShiftedPattern)) X((TensorBoxLoad)) X((EarlyBytes)) X((Elect))
// Places in the list.
inline constexpr size_t kLoadMatrix = 0, kStoreMatrix = 6, kShiftedPattern = 12,
                        kTensorBoxLoad = 13, kEarlyBytes = 14, kElect = 15;

extern const Entries kMemoryEntries;

}  // namespace halftone::verify

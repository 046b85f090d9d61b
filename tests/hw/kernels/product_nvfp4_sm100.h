// D = A B^T in NVFP4 on sm_100a, one tile of 128 x 128 x 256: codes by tensor copies, scales by
// bulk copies and tcgen05.cp, products of 64 elements with a scale for each 16.
#pragma once
#include "hw/barrier.h"
#include "hw/copy/bulk_copy.h"
#include "hw/copy/tma.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/mma/tcgen05_alloc.h"
#include "hw/mma/tcgen05_cp.h"
#include "hw/mma/tcgen05_ld_st.h"
#include "hw/mma/tcgen05_mma.h"
#include "hw/mma/tcgen05_sync.h"
#include "hw/thread.h"
#include "hw/warp.h"
#include "tile/scale_factor.h"

namespace halftone::test {

struct ProductNvfp4Sm100 {
  struct Params {
    hw::TensorMap a_map, b_map;          // [128, 256] e2m1, one box each
    const uint8_t *a_scales, *b_scales;  // [128, 16] ue4m3 as 128x4 atoms along K
    float scale;                         // of both tensors together
    float* d;                            // [128, 128]
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  static constexpr tile::SharedTile kTile{tile::Major::k, tile::Swizzle::b128, 4, 128, 256};
  static constexpr uint32_t kTileBytes = 128 * 128, kAtoms = 4;
  static constexpr uint32_t kAtomColumns = tile::kScaleAtomColumns;
  static constexpr uint32_t kScaleBytes = kAtoms * tile::kScaleAtomBytes;
  static constexpr tile::Tcgen05Instruction kInstruction{.kind = tile::Tcgen05Kind::mxf4nvf4,
                                                         .a = tile::Tcgen05Type::e2m1,
                                                         .b = tile::Tcgen05Type::e2m1,
                                                         .m = 128,
                                                         .n = 128,
                                                         .scale = tile::Tcgen05Scale::ue4m3};
  static_assert(kInstruction.valid() && kTile.valid() && kTile.bytes() == kTileBytes);

  // Shared memory: A, B, their scales, two barriers, the address of tensor memory.
  static constexpr uint32_t kScales = 2 * kTileBytes, kBarriers = kScales + 2 * kScaleBytes;
  static constexpr uint32_t kSharedBytes = kBarriers + 32;
  // Tensor memory: D in 128 columns, then 4 columns for each atom of scales.
  static constexpr uint32_t kColumns = 256, kScalesA = 128, kScalesB = 144;

  HT_DEVICE static void run(const Params& p) {
    using namespace hw;
    const uint32_t warp = warp_index();
    const SharedAddress base = shared_memory_base(), address = base + kBarriers + 16;
    const Mbarrier full{base + kBarriers}, done{base + kBarriers + 8};
    if (warp == 0) tcgen05_alloc<CtaGroup::one>(address, kColumns);
    if (warp == 1) {
      if (elect_one()) {
        mbarrier_init(full, 1);
        mbarrier_init(done, 1);
        fence_mbarrier_init();
      }
      warp_sync();
    }
    tcgen05_fence_before_thread_sync();
    barrier_sync();
    tcgen05_fence_after_thread_sync();
    const TensorAddress d{load_shared<uint32_t>(address)};
    if (warp == 0) {
      if (elect_one()) {
        copy(p, base, full);
        mbarrier_wait(full, 0);
        tcgen05_fence_after_thread_sync();
        multiply(base, d);
        tcgen05_commit<CtaGroup::one>(done);
      }
      warp_sync();
    }
    mbarrier_wait(done, 0);
    tcgen05_fence_after_thread_sync();
    float* row = p.d + thread_index().x * 128;
    for (uint32_t column = 0; column < 128; column += 16) {
      uint32_t r[16];
      tcgen05_ld<TensorShape::s32x32b, 16>(r, d.plus(warp * 32, column));
      tcgen05_wait_ld(r);
      for (uint32_t i = 0; i < 16; ++i) {
        store_global(row + column + i, p.scale * std::bit_cast<float>(r[i]));
      }
    }
    tcgen05_fence_before_thread_sync();
    barrier_sync();
    if (warp == 0) {
      tcgen05_fence_after_thread_sync();
      tcgen05_relinquish_alloc_permit<CtaGroup::one>();
      tcgen05_dealloc<CtaGroup::one>(d, kColumns);
    }
  }

 private:
  HT_DEVICE static void copy(const Params& p, hw::SharedAddress base, hw::Mbarrier full) {
    hw::mbarrier_arrive_expect_tx(full, 2 * kTileBytes + 2 * kScaleBytes);
    const int32_t at[2] = {0, 0};
    hw::tensor_load(base, &p.a_map, at, full);
    hw::tensor_load(base + kTileBytes, &p.b_map, at, full);
    hw::bulk_load(base + kScales, p.a_scales, kScaleBytes, full);
    hw::bulk_load(base + kScales + kScaleBytes, p.b_scales, kScaleBytes, full);
  }

  // Copies of scales run before the products behind them, without a wait between.
  HT_DEVICE static void multiply(hw::SharedAddress base, hw::TensorAddress d) {
    using namespace hw;
    const auto lines = [](SharedAddress at) {  // 32 lines of 16 bytes, groups of 8 lines
      return Tcgen05Descriptor::encode({.start = at.value, .leading = 16, .stride = 128});
    };
    const SharedAddress scales = base + kScales;
    for (uint32_t atom = 0; atom < kAtoms; ++atom) {
      const uint32_t byte = atom * tile::kScaleAtomBytes, column = atom * tile::kScaleAtomColumns;
      tcgen05_cp<tile::TensorCopy::s32x128b_warpx4, CtaGroup::one>(d.plus(0, kScalesA + column),
                                                                   lines(scales + byte));
      tcgen05_cp<tile::TensorCopy::s32x128b_warpx4, CtaGroup::one>(
          d.plus(0, kScalesB + column), lines(scales + (kScaleBytes + byte)));
    }
    constexpr tile::SharedTile tile = kTile;  // device code has no address of a static member
    const auto a = Tcgen05Descriptor::of(tile, base.value);
    const auto b = Tcgen05Descriptor::of(tile, base.value + kTileBytes);
    for (uint32_t step = 0; step < kAtoms; ++step) {
      const uint32_t along = tile.advance(0, step * 64), column = step * kAtomColumns;
      tcgen05_mma_block_scale<Tcgen05Kind::mxf4nvf4, ScaleBlock::block16, CtaGroup::one>(
          d, a.advanced(along), b.advanced(along), kInstruction.encode(),
          d.plus(0, kScalesA + column), d.plus(0, kScalesB + column), step > 0);
    }
  }
};

}  // namespace halftone::test

// The instances of the mixed-input GEMM on sm_90a: a weight type, a scale mode, and 32, 64, 128 or
// 256 rows of x a tile.
#pragma once
#include "hw/image.h"
#include "ops/gemm/sm90/mixed/choice.h"
#include "ops/gemm/sm90/mixed/gemm.cuh"

namespace halftone::gemm {

struct Sm90Instance {
  KernelImage image;
  LaunchShape (*shape)(const Sm90Params&, uint32_t multiprocessors);
};

// The instances of each .cu file; the weight type must be one of that file's.
Sm90Instance sm90_w16(const Sm90Choice&);
Sm90Instance sm90_w8(const Sm90Choice&);
Sm90Instance sm90_w4(const Sm90Choice&);
Sm90Instance sm90_fp8(const Sm90Choice&);

template <GpuCode kCode, ScaleMode kScales>
inline constexpr uint32_t kMaxColumns = kScales == ScaleMode::fp8_promotion ? 128 : 256;

#if defined(__CUDACC__)
#define HT_SM90_GEMM(code, scales, columns)                                 \
  HT_GPU_ENTRY(halftone::gemm::Sm90MixedGemm<halftone::gemm::GpuCode::code, \
                                             halftone::gemm::ScaleMode::scales, columns>)
// W as [K, N].
#define HT_SM90_GEMM_TRANSPOSED(code, columns)                                         \
  HT_GPU_ENTRY(halftone::gemm::Sm90MixedGemm<halftone::gemm::GpuCode::code,            \
                                             halftone::gemm::ScaleMode::none, columns, \
                                             halftone::tile::Major::mn>)
#define HT_SM90_GEMMS_TO_128(code, scales) \
  HT_SM90_GEMM(code, scales, 32) HT_SM90_GEMM(code, scales, 64) HT_SM90_GEMM(code, scales, 128)
#define HT_SM90_GEMMS(code, scales) \
  HT_SM90_GEMMS_TO_128(code, scales) HT_SM90_GEMM(code, scales, 256)
#else
// 32 columns are for experts of few rows (`choose` in mixed/launch.cpp), whose W is [N, K].
template <GpuCode kCode, ScaleMode kScales, tile::Major kMajorW = tile::Major::k,
          uint32_t kColumns = kMajorW == tile::Major::mn ? 64 : 32>
Sm90Instance sm90_instance(uint32_t columns) {
  if constexpr (kColumns < kMaxColumns<kCode, kScales>) {
    if (columns > kColumns) return sm90_instance<kCode, kScales, kMajorW, 2 * kColumns>(columns);
  }
  using Kernel = Sm90MixedGemm<kCode, kScales, kColumns, kMajorW>;
  return {hw::image_of<Kernel>("gemm_sm90_mixed", Arch::sm_90a), Kernel::shape};
}
#endif

}  // namespace halftone::gemm

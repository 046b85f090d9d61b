#include "ops/gemm/sm90/mixed/instances.h"
#include "ops/gemm/sm90/fp8/gemm.cuh"
#include "ops/gemm/sm90/fp8/small_m.cuh"

namespace halftone::gemm {

namespace {

template <class Kernel>
Sm90Instance small_m() {
  return {hw::image_of<Kernel>("gemm_sm90_fp8_small_m", Arch::sm_90a), Kernel::shape};
}

}  // namespace

Sm90Instance sm90_fp8(const Sm90Choice& c) {
  if (c.few > 0 && c.columns == 64) {
    return c.few == 64 ? small_m<Sm90Fp8SmallM64x64>() : small_m<Sm90Fp8SmallM64x128>();
  }
  if (c.few > 0)
    return c.few == 64 ? small_m<Sm90Fp8SmallM128x64>() : small_m<Sm90Fp8SmallM128x192>();
  if (c.columns == Sm90Fp8Gemm::kXRows) {
    return {hw::image_of<Sm90Fp8Gemm>("gemm_sm90_fp8", Arch::sm_90a), Sm90Fp8Gemm::shape};
  }
  return sm90_instance<GpuCode::e4m3, ScaleMode::fp8_promotion>(c.columns);
}

}  // namespace halftone::gemm

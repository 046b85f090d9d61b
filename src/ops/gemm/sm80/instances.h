// The instances of the GEMM and GEMV kernels from sm_80 on: a weight type and a tile each.
#pragma once
#include "hw/image.h"
#include "ops/gemm/sm80/gemm.cuh"
#include "ops/gemm/sm80/gemv_persistent.cuh"

namespace halftone::gemm {

// Tiled GEMM: 32 x 64 a warp is 64 accumulators and 64 sums a thread, hence one CTA an SM. 99 KB is
// what sm_89 and sm_120 give a CTA.
inline constexpr GpuTile kLargeTile{128, 128, 4, 2, 99 * 1024, 4, 1};

template <GpuCode kCode>
using GpuGemv8 = GpuGemv<kCode, 1>;
template <GpuCode kCode>
using GpuGemv16 = GpuGemv<kCode, 2>;
template <GpuCode kCode>
using GpuLargeTile = GpuTiledGemm<kCode, kLargeTile>;

struct GpuInstance {
  KernelImage image;
  LaunchShape (*shape)(const GpuGemm&, uint32_t chunks);
};

// The instances of each .cu file, for so many columns of x a CTA; the type must be one of that
// file's.
GpuInstance gpu_w16(GpuCode, uint32_t columns);
GpuInstance gpu_w8(GpuCode, uint32_t columns);
GpuInstance gpu_w4(GpuCode, uint32_t columns);
// The persistent GEMVs of the types of each file, except FP32 and FP16 in terms.
KernelImage gpu_w16_persistent(GpuCode);
KernelImage gpu_w8_persistent(GpuCode, GpuLoop);
KernelImage gpu_w4_persistent(GpuCode, GpuLoop);

#if defined(__CUDACC__)
#define HT_GEMM_ENTRIES(code)                                            \
  HT_GPU_ENTRY(halftone::gemm::GpuGemv8<halftone::gemm::GpuCode::code>)  \
  HT_GPU_ENTRY(halftone::gemm::GpuGemv16<halftone::gemm::GpuCode::code>) \
  HT_GPU_ENTRY(halftone::gemm::GpuLargeTile<halftone::gemm::GpuCode::code>)
#define HT_PERSISTENT_ENTRY(code, loop)                                         \
  HT_GPU_ENTRY(halftone::gemm::GpuGemvPersistent<halftone::gemm::GpuCode::code, \
                                                 halftone::gemm::GpuLoop::loop>)
#else
template <GpuCode kCode, GpuLoop kLoop = GpuLoop::wide>
KernelImage persistent_image() {
  return hw::image_of<GpuGemvPersistent<kCode, kLoop> >("matmul_gpu_persistent");
}
// Of a type that may have UE8M0 scales.
template <GpuCode kCode>
KernelImage persistent_image(GpuLoop loop) {
  return loop == GpuLoop::ue8m0 ? persistent_image<kCode, GpuLoop::ue8m0>()
                                : persistent_image<kCode>();
}
template <GpuCode kCode>
GpuInstance gpu_instance(uint32_t columns) {
  using Eight = GpuGemv8<kCode>;
  using Sixteen = GpuGemv16<kCode>;
  using Many = GpuLargeTile<kCode>;
  if (columns > 16) return {hw::image_of<Many>("matmul_gpu_many"), Many::shape};
  if (columns > 8) return {hw::image_of<Sixteen>("matmul_gpu_few"), Sixteen::shape};
  return {hw::image_of<Eight>("matmul_gpu_few"), Eight::shape};
}
#endif

}  // namespace halftone::gemm

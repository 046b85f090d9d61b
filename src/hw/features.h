// Which architecture has which instruction: one table for the compile-time check of the GPU
// passes, the run-time check of the simulator, the assembling test and the documentation.
// Source: PTX ISA 9.1, and what ptxas 13.0 assembles.
#pragma once
#include <cstdint>

#include "halftone/device.h"

namespace halftone::hw {

enum class Feature : uint8_t {
  // clang-format off
  common,            // sm_80 up: mma.sync bf16/f16/s8, ldmatrix, cp.async, shuffles, barriers
  fp8_convert,       // sm_89 up: cvt to and from e4m3, e5m2
  mma_fp8,           // sm_89 up: mma.sync e4m3/e5m2 (on sm_90a, sm_100a made of f16 products)
  mbarrier_tx,       // sm_90 up: transaction counts, try_wait, bulk copies, tensor copies, clusters
  stmatrix,          // sm_90 up
  setmaxnreg,        // sm_90a, sm_100a, sm_120a
  wgmma,             // sm_90a only
  tcgen05,           // sm_100a: tensor memory and its instructions
  f32x2,             // sm_100a, sm_120a: packed FP32 arithmetic
  fp4_convert,       // sm_100a, sm_120a: cvt to and from e2m1, e2m3, e3m2, ue8m0
  ldmatrix_narrow,   // sm_100a, sm_120a: 8-, 6- and 4-bit forms of ldmatrix, stmatrix
  mma_f8f6f4,        // sm_120a: mma.sync kind::f8f6f4
  mma_block_scale,   // sm_120a: mma.sync mxf8f6f4, mxf4, mxf4nvf4
  redux_f32,         // sm_100a
  tma_gather4,       // sm_100a, sm_120a: tensor copies of four rows
  tma_cta_group,     // sm_100a: scatter4, tensor copies for pairs of blocks
  // clang-format on
};

constexpr bool available(Feature feature, Arch arch) {
  switch (feature) {
    case Feature::common:
      return true;
    case Feature::fp8_convert:
    case Feature::mma_fp8:
      return arch >= Arch::sm_89;
    case Feature::mbarrier_tx:
    case Feature::stmatrix:
    case Feature::setmaxnreg:
      return arch >= Arch::sm_90a;
    case Feature::wgmma:
      return arch == Arch::sm_90a;
    case Feature::tcgen05:
    case Feature::redux_f32:
    case Feature::tma_cta_group:
      return arch == Arch::sm_100a;
    case Feature::f32x2:
    case Feature::fp4_convert:
    case Feature::ldmatrix_narrow:
    case Feature::tma_gather4:
      return arch >= Arch::sm_100a;
    case Feature::mma_f8f6f4:
    case Feature::mma_block_scale:
      return arch == Arch::sm_120a;
  }
  return false;
}

}  // namespace halftone::hw

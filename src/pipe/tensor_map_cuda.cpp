// The driver's encoder, found at run time: the library links to the CUDA runtime only.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "halftone/error.h"
#include "pipe/tensor_map_backend.h"

namespace halftone::pipe {

namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode encoder() {
  static const Encode encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    // By version: the function's signature is the one of CUDA 12.0.
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                                12000, cudaEnableDefault, &found);
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess || entry == nullptr) {
      throw Error(ErrorCode::device,
                  std::string("tensor map: the CUDA driver has no cuTensorMapEncodeTiled (") +
                      cudaGetErrorString(status) + "); a driver of CUDA 12 or later has it");
    }
    return reinterpret_cast<Encode>(entry);
  }();
  return encode;
}

CUtensorMapSwizzle swizzle_of(tile::Swizzle s) {
  switch (s) {
    case tile::Swizzle::none:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case tile::Swizzle::b32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case tile::Swizzle::b64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case tile::Swizzle::b128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case tile::Swizzle::b128_atom32:
      return CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B;
    case tile::Swizzle::b128_atom64:
      return CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B;
  }
  return CU_TENSOR_MAP_SWIZZLE_NONE;
}

static_assert(static_cast<int>(sim::TensorMapType::bf16) == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
static_assert(static_cast<int>(sim::TensorMapType::u4_align8) ==
              CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B);
static_assert(static_cast<int>(sim::TensorMapType::u6_align16) ==
              CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B);

}  // namespace

hw::TensorMap make_cuda_tensor_map(const TensorBox& b) {
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  cuuint64_t extent[5], stride[5];
  for (uint32_t d = 0; d < 5; ++d) extent[d] = b.extent[d];
  for (uint32_t d = 0; d < 4; ++d) stride[d] = b.stride[d];
  CUtensorMap map;
  const CUresult result = encoder()(
      &map, static_cast<CUtensorMapDataType>(element_type(b.type)), b.rank, b.address, extent,
      stride, b.box.data(), steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(b.swizzle),
      // Boxes are as wide as a cache line or two: the L2 fetches what the next copy asks for.
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      b.fill_with_nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
                      : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorCode::device, "tensor map: the CUDA driver refused it (error " +
                                       std::to_string(static_cast<int>(result)) +
                                       "), a box of rank " + std::to_string(b.rank));
  }
  hw::TensorMap opaque{};
  static_assert(sizeof(map) == sizeof(opaque));
  std::memcpy(&opaque, &map, sizeof(map));
  return opaque;
}

}  // namespace halftone::pipe

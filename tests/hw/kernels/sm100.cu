// The kernels for sm_100a, assembled.
#include "hw/entry.h"
#include "hw/kernels/product_bf16_pair_sm100.h"
#include "hw/kernels/product_bf16_sm100.h"
#include "hw/kernels/product_nvfp4_sm100.h"

namespace halftone::test {
const void* const kSm100Kernels[] = {hw::gpu_entry<ProductBf16Sm100>(),
                                     hw::gpu_entry<ProductBf16PairSm100>(),
                                     hw::gpu_entry<ProductNvfp4Sm100>()};
}

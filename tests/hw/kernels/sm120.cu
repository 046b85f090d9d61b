// The kernels for sm_120a, assembled.
#include "hw/entry.h"
#include "hw/kernels/product_scaled_sm120.h"

namespace halftone::test {
const void* const kSm120Kernels[] = {hw::gpu_entry<ProductScaledSm120<false>>(),
                                     hw::gpu_entry<ProductScaledSm120<true>>()};
}

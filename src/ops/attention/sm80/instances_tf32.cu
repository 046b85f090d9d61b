// GPU entries of attention on sm_80 and later with FP32 as three TF32 MMAs.
#include "hw/entry.h"
#include "ops/attention/sm80/instances.h"

namespace halftone::attention_sm80 {

const void* tf32_entry(int tile) {
  const void* const entries[] = {hw::gpu_entry<Kernel<hw::Type::tf32, 0>>(),
                                 hw::gpu_entry<Kernel<hw::Type::tf32, 1>>(),
                                 hw::gpu_entry<Kernel<hw::Type::tf32, 2>>()};
  return entries[tile];
}

}  // namespace halftone::attention_sm80

// Attention for all GPUs: the entries of its products of tf32.
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

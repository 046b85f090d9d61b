// GPU entries of attention on sm_80 and later with FP32 as three TF32 MMAs.
#include "hw/entry.h"
#include "ops/attention/sm80/instances.h"

namespace halftone::attention_sm80 {

const void* tf32_entry(int tile) {
  return hw::gpu_entry_at<Kernel<hw::Type::tf32, 0>, Kernel<hw::Type::tf32, 1>,
                          Kernel<hw::Type::tf32, 2>>(tile);
}

}  // namespace halftone::attention_sm80

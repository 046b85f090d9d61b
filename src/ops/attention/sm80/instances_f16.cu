// GPU entries of attention on sm_80 and later with FP16 MMAs.
#include "hw/entry.h"
#include "ops/attention/sm80/instances.h"

namespace halftone::attention_sm80 {

const void* f16_entry(int tile) {
  return hw::gpu_entry_at<Kernel<hw::Type::f16, 0>, Kernel<hw::Type::f16, 1>,
                          Kernel<hw::Type::f16, 2>>(tile);
}

}  // namespace halftone::attention_sm80

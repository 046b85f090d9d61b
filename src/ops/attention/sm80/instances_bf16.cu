// GPU entries of attention on sm_80 and later with BF16 MMAs, and of the split-KV combine.
#include "hw/entry.h"
#include "ops/attention/sm80/instances.h"

namespace halftone::attention_sm80 {

const void* bf16_entry(int tile) {
  return hw::gpu_entry_at<Kernel<hw::Type::bf16, 0>, Kernel<hw::Type::bf16, 1>,
                          Kernel<hw::Type::bf16, 2>>(tile);
}
const void* combine_entry() { return hw::gpu_entry<Combine>(); }

}  // namespace halftone::attention_sm80

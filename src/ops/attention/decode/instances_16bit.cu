// GPU entries of decode attention over BF16 and FP16 caches.
#include "hw/entry.h"
#include "ops/attention/decode/instances.h"
#include "ops/attention/decode/kernel.cuh"

namespace halftone::attention_decode {

const void* float16_entry(Format format, int64_t dim) {
  const bool wide = dim == 128;
  return format == Format::bf16 ? wide ? hw::gpu_entry<Decode<Format::bf16, 128>>()
                                       : hw::gpu_entry<Decode<Format::bf16, 64>>()
         : wide ? hw::gpu_entry<Decode<Format::f16, 128>>()
                                : hw::gpu_entry<Decode<Format::f16, 64>>();
}

}  // namespace halftone::attention_decode

// Attention of one query token over a cache in 16 bits: the entries on the GPU.
#include "hw/entry.h"
#include "ops/attention/decode/instances.h"
#include "ops/attention/decode/kernel.cuh"

namespace halftone::attention_decode {

const void* plain_entry(Format format, int64_t dim) {
  const bool wide = dim == 128;
  return format == Format::bf16 ? wide ? hw::gpu_entry<Decode<Format::bf16, 128>>()
                                       : hw::gpu_entry<Decode<Format::bf16, 64>>()
         : wide ? hw::gpu_entry<Decode<Format::f16, 128>>()
                                : hw::gpu_entry<Decode<Format::f16, 64>>();
}

}  // namespace halftone::attention_decode

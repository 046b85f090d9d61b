// GPU entries of decode attention over BF16 and FP16 caches.
#include "hw/entry.h"
#include "ops/attention/decode/instances.h"
#include "ops/attention/decode/kernel.cuh"

namespace halftone::attention_decode {

const void* float16_entry(Format format, int64_t dim) {
  return hw::gpu_entry_at<Decode<Format::bf16, 128>, Decode<Format::bf16, 64>,
                          Decode<Format::f16, 128>, Decode<Format::f16, 64>>(
      (format == Format::bf16 ? 0 : 2) + (dim == 128 ? 0 : 1));
}

}  // namespace halftone::attention_decode

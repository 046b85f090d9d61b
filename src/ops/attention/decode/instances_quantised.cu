// GPU entries of decode attention over FP8, INT8 and NVFP4 caches.
#include "hw/entry.h"
#include "ops/attention/decode/dequantise.cuh"
#include "ops/attention/decode/instances.h"
#include "ops/attention/decode/kernel.cuh"

namespace halftone::attention_decode {

namespace {

template <Format kFormat>
const void* entry_of(int64_t dim) {
  return hw::gpu_entry_at<Decode<kFormat, 128>, Decode<kFormat, 64>>(dim == 128 ? 0 : 1);
}

}  // namespace

const void* quantised_entry(Format format, int64_t dim) {
  return format == Format::nvfp4  ? entry_of<Format::nvfp4>(dim)
         : format == Format::int8 ? entry_of<Format::int8>(dim)
                                  : entry_of<Format::fp8_e4m3>(dim);
}

}  // namespace halftone::attention_decode

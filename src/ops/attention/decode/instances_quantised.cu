// GPU entries of decode attention over FP8, INT8 and NVFP4 caches.
#include "hw/entry.h"
#include "ops/attention/decode/dequantise.cuh"
#include "ops/attention/decode/instances.h"
#include "ops/attention/decode/kernel.cuh"

namespace halftone::attention_decode {

namespace {

template <Format kFormat>
const void* entry(int64_t dim) {
  return dim == 128 ? hw::gpu_entry<Decode<kFormat, 128>>() : hw::gpu_entry<Decode<kFormat, 64>>();
}

}  // namespace

const void* quantised_entry(Format format, int64_t dim) {
  return format == Format::nvfp4  ? entry<Format::nvfp4>(dim)
         : format == Format::int8 ? entry<Format::int8>(dim)
                                  : entry<Format::fp8_e4m3>(dim);
}

}  // namespace halftone::attention_decode

// GPU entries of attention on sm_90a with V in E4M3 beside Q and K in BF16.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/fp8/tiles.h"

namespace halftone::attention_sm90 {

namespace {

template <KeyScaling kOfValues, int... kIndex>
const void* fp8_values_entry(int tile, std::integer_sequence<int, kIndex...>) {
  return hw::gpu_entry_at<ForwardFp8<kFp8ValuesTiles[kIndex], Fp8Values<kOfValues>>...>(tile);
}

}  // namespace

const void* gpu_fp8_values_entry(int tile, KeyScaling of_values) {
  return for_scaling(of_values, [&]<KeyScaling kScaling>() {
    return fp8_values_entry<kScaling>(tile, std::make_integer_sequence<int, kFp8ValuesTileCount>());
  });
}

}  // namespace halftone::attention_sm90

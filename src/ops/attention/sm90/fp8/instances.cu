// GPU entries of dense E4M3 attention on sm_90a.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/fp8/tiles.h"

namespace halftone::attention_sm90 {

namespace {

template <KeyScaling kOfKeys, int... kIndex>
const void* fp8_entry(int tile, std::integer_sequence<int, kIndex...>) {
  return hw::gpu_entry_at<ForwardFp8<fp8_tile(kOfKeys, kIndex), Fp8Dense<kOfKeys>>...>(tile);
}

}  // namespace

const void* gpu_fp8_entry(int tile, KeyScaling of_keys) {
  return for_scaling(of_keys, [&]<KeyScaling kScaling>() {
    return fp8_entry<kScaling>(tile, std::make_integer_sequence<int, kFp8TileCount>());
  });
}

}  // namespace halftone::attention_sm90

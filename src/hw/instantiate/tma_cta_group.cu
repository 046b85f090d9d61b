// Feature: tma_cta_group
#include "hw/copy/tma_sm100.h"
#include "instantiate.h"

namespace halftone::hw {

template <int kRank>
__device__ void of_rank(const Operands& o, const TensorMap* map) {
  int32_t at[kRank];
  for (int i = 0; i < kRank; i++) at[i] = o.i + i;
  tensor_load_pair(o.shared, map, at, o.remote);
  tensor_load_pair(o.shared, map, at, o.remote, o.policy);
  tensor_load_pair_multicast(o.shared, map, at, o.remote, static_cast<uint16_t>(o.b));
}

__global__ void instantiate_cta_group(Operands o, const __grid_constant__ TensorMap map) {
  const int32_t at[5] = {o.i, o.i, o.i, o.i, o.i};
  const auto blocks = static_cast<uint16_t>(o.b);
  tensor_load_gather4_multicast<CtaGroup::one>(o.shared, &map, at, o.remote, blocks);
  tensor_load_gather4_multicast<CtaGroup::two>(o.shared, &map, at, o.remote, blocks);
  tensor_store_scatter4(&map, at, o.shared);
  tensor_prefetch_gather4(&map, at);
  of_rank<1>(o, &map);
  of_rank<2>(o, &map);
  of_rank<3>(o, &map);
  of_rank<4>(o, &map);
  of_rank<5>(o, &map);
}

}  // namespace halftone::hw

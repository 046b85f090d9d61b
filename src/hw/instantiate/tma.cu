// Feature: mbarrier_tx
#include "hw/copy/tma.h"

#include "instantiate.h"

namespace halftone::hw {

template <int kRank>
__device__ void of_rank(const Operands& o, const TensorMap* map) {
  int32_t at[kRank];
  for (int i = 0; i < kRank; i++) at[i] = o.i + i;
  const auto blocks = static_cast<uint16_t>(o.b);
  tensor_load(o.shared, map, at, o.barrier);
  tensor_load(o.shared, map, at, o.barrier, o.policy);
  tensor_load_multicast(o.shared, map, at, o.barrier, blocks);
  tensor_load_multicast(o.shared, map, at, o.barrier, blocks, o.policy);
  tensor_store(map, at, o.shared);
  tensor_store(map, at, o.shared, o.policy);
  tensor_reduce<BulkReduction::add>(map, at, o.shared);
  tensor_reduce<BulkReduction::add>(map, at, o.shared, o.policy);
  tensor_reduce<BulkReduction::min>(map, at, o.shared);
  tensor_reduce<BulkReduction::max>(map, at, o.shared);
  tensor_reduce<BulkReduction::inc>(map, at, o.shared);
  tensor_reduce<BulkReduction::dec>(map, at, o.shared);
  tensor_reduce<BulkReduction::and_>(map, at, o.shared);
  tensor_reduce<BulkReduction::or_>(map, at, o.shared);
  tensor_reduce<BulkReduction::xor_>(map, at, o.shared);
  tensor_prefetch(map, at);
}

__global__ void instantiate_tma(Operands o, const __grid_constant__ TensorMap map) {
  prefetch_tensor_map(&map);
  of_rank<1>(o, &map);
  of_rank<2>(o, &map);
  of_rank<3>(o, &map);
  of_rank<4>(o, &map);
  of_rank<5>(o, &map);
}

}  // namespace halftone::hw

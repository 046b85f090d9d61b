// Feature: mbarrier_tx
#include "hw/copy/bulk_copy.h"

#include "hw/copy/bulk_reduce.h"
#include "instantiate.h"

namespace halftone::hw {

template <Type kType, BulkReduction... kReductions>
__device__ void reductions(const Operands& o) {
  (bulk_reduce<kReductions, kType>(o.memory, o.shared, o.a), ...);
  (bulk_reduce<kReductions, kType>(o.memory, o.shared, o.a, o.policy), ...);
}

__global__ void instantiate_bulk_copy(Operands o) {
  bulk_load(o.shared, o.memory, o.a, o.barrier);
  bulk_load(o.shared, o.memory, o.a, o.barrier, o.policy);
  bulk_load_multicast(o.shared, o.memory, o.a, o.barrier, static_cast<uint16_t>(o.b));
  bulk_load_multicast(o.shared, o.memory, o.a, o.barrier, static_cast<uint16_t>(o.b), o.policy);
  bulk_send(o.remote, o.shared, o.a, o.remote);
  bulk_store(o.memory, o.shared, o.a);
  bulk_store(o.memory, o.shared, o.a, o.policy);
  using enum BulkReduction;
  reductions<Type::f16, add, min, max>(o);
  reductions<Type::bf16, add, min, max>(o);
  reductions<Type::f32, add>(o);
  reductions<Type::f64, add>(o);
  reductions<Type::u32, add, min, max, inc, dec>(o);
  reductions<Type::s32, add, min, max>(o);
  reductions<Type::u64, add, min, max>(o);
  reductions<Type::s64, min, max>(o);
  reductions<Type::b32, and_, or_, xor_>(o);
  reductions<Type::b64, and_, or_, xor_>(o);
  bulk_commit();
  bulk_wait<0>();
  bulk_wait<7>();
  bulk_wait_read<0>();
  bulk_prefetch(o.memory, o.a);
}

}  // namespace halftone::hw

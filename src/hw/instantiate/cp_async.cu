#include "hw/copy/cp_async.h"

#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_cp_async(Operands o) {
  cp_async<4>(o.shared, o.memory);
  cp_async<8>(o.shared, o.memory);
  cp_async<16>(o.shared, o.memory);
  cp_async<16, CopyCache::all>(o.shared, o.memory);
  cp_async_zero_fill<4>(o.shared, o.memory, o.a);
  cp_async_zero_fill<8>(o.shared, o.memory, o.a);
  cp_async_zero_fill<16>(o.shared, o.memory, o.a);
  cp_async_zero_fill<16, CopyCache::all>(o.shared, o.memory, o.a);
  cp_async_hint(o.shared, o.memory, o.policy);
  cp_async_commit();
  cp_async_wait<0>();
  cp_async_wait<3>();
  cp_async_wait_all();
  cp_async_mbarrier_arrive_noinc(o.barrier);
  cp_async_mbarrier_arrive(o.barrier);
}

}  // namespace halftone::hw

#include "hw/thread.h"

#include "hw/entry.h"
#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_thread(Operands o) {
  use(o, thread_index().x + block_size().y + block_index().z + grid_size().x);
  use(o, lane_index() + warp_index() + multiprocessor_index());
  use(o, shared_memory_base());
  set_role("instantiation");
  nanosleep(o.a);
  use(o, global_timer());
  trap();
}

}  // namespace halftone::hw

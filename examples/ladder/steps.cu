#include "entries.h"

namespace halftone::ladder {

template <class Kernel>
const void* gpu_entry_of() {
  return hw::gpu_entry<Kernel>();
}
template const void* gpu_entry_of<Naive>();
template const void* gpu_entry_of<SharedTiles>();
template const void* gpu_entry_of<MmaSync>();
template const void* gpu_entry_of<Swizzled>();
template const void* gpu_entry_of<Stages>();
template const void* gpu_entry_of<TmaRing>();
template const void* gpu_entry_of<Wgmma>();
template const void* gpu_entry_of<WarpRoles>();
template const void* gpu_entry_of<Persistent>();

}  // namespace halftone::ladder

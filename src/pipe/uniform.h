// Numbers that are the same in all lanes of a warp, told so that the assembler knows.
//
// ptxas keeps what it can prove to be the same in uniform registers, where descriptors and
// addresses of the tensor cores have to be; everything else is moved there for each MMA, by an
// instruction a register. The result of a shuffle is the same to it. The number of a thread, what
// was loaded, and all that lies behind a branch on one of them are not.
#pragma once
#include "hw/address.h"
#include "hw/warp.h"

namespace halftone::pipe {

// By whole warps; `same` is what every lane has.
HT_DEVICE uint32_t uniform(uint32_t same, hw::Site site = hw::Site::current()) {
  return hw::shuffle(same, 0, 32, hw::kFullWarp, site);
}

// The kernel's shared memory. Its plain address is made anew from the block's number wherever it is
// used, which in a loop is a slow register's latency before each wait for a stage.
HT_DEVICE hw::SharedAddress uniform_shared_memory(hw::Site site = hw::Site::current()) {
  return {uniform(hw::shared_memory_base(site).value, site)};
}

}  // namespace halftone::pipe

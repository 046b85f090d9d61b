// What a device has of memory, and what of it is taken.
#pragma once
#include <cstdint>

#include "halftone/device.h"

namespace halftone {

// Of a CUDA device, in bytes; `free` counts what this process holds ready, `used` what its tensors
// and workspaces take.
struct DeviceMemory {
  int64_t total = 0, free = 0, used = 0;
};
DeviceMemory device_memory(const Device&);

}  // namespace halftone

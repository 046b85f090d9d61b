// Bringing a kernel's code to the device ahead of its first launch, which would else wait for it:
// for plans.
#pragma once
#include "base/launch.h"

namespace halftone {

void load(const KernelImage&, const Device&);

namespace cuda {
void load(const KernelImage&, const Device&);
}

}  // namespace halftone

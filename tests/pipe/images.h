// The test kernels as both devices start them.
#pragma once
#include "base/launch.h"

namespace halftone::test {

extern const KernelImage kDoubleTiles, kStoreRing, kWriteSums;

}  // namespace halftone::test

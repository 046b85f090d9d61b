// The kernels of kernels.h, ready to launch.
#pragma once
#include "base/launch.h"

namespace halftone::test {

extern const KernelImage kScale, kReverse, kRanks, kStep, kBusy, kTrap;

}  // namespace halftone::test

// The end of a product, once per ISA level: cpu_finish.cpp.
#pragma once
#include "ops/gemm/cpu/kernels.h"

namespace halftone::HALFTONE_LEVEL {

void finish_row(const gemm::Finish&);

}  // namespace halftone::HALFTONE_LEVEL

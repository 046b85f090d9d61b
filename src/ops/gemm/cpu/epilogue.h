// The epilogue of a GEMM on CPUs, compiled once per ISA level: epilogue.cpp.
#pragma once
#include "ops/gemm/cpu/kernels.h"

namespace halftone::HALFTONE_LEVEL {

void epilogue_row(const gemm::EpilogueArgs&);

}  // namespace halftone::HALFTONE_LEVEL

// The rows of `halftone bench overhead` that need the engine.
#pragma once
#include <vector>

#include "bench/families.h"

namespace halftone {

// A token of a model whose kernels have next to nothing to do: calls, checks, sampling. Then one of
// stories260K's extents (norms, attention over 128 keys on average, sampling, every call), whole
// and less its products, both measured by turns.
std::vector<BenchRow> bench_engine_overhead(const CpuBench&);

}  // namespace halftone

// `halftone bench matmul` and `halftone bench gemv`.
#pragma once
#include <vector>

#include "bench_row.h"
#include "halftone/stream.h"

namespace halftone {

// Products of 4096 x 4096 weights in every format with 512 rows of activations, then with few rows.
// `quick` keeps the formats of the targets and fewer repeats.
std::vector<BenchRow> bench_matmul(Stream&, bool quick);
// One row of activations, the weights coming from memory: copies of them are used in turn, more
// than the caches hold.
std::vector<BenchRow> bench_gemv(Stream&, bool quick);

}  // namespace halftone

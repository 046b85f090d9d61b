// `halftone bench ops`: norm, activation, softmax, rope and conversions against memory bandwidth.
#pragma once
#include <vector>

#include "bench_row.h"
#include "halftone/stream.h"

namespace halftone {

std::vector<BenchRow> bench_ops(Stream&, bool quick);

}  // namespace halftone

// `halftone bench formats`: how fast tensors are quantised, dequantised and converted.
#pragma once
#include <vector>

#include "bench_row.h"
#include "halftone/stream.h"

namespace halftone {

// Bytes read and written by each conversion of a tensor past the processor's caches, against the
// read bandwidth measured in the same run. `quick` runs fewer repeats and formats.
std::vector<BenchRow> bench_formats(Stream&, bool quick);

}  // namespace halftone

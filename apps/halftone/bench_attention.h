// `halftone bench attention`.
#pragma once
#include <vector>

#include "bench_row.h"
#include "halftone/stream.h"

namespace halftone {

// Prefill and decode of the shapes of a language model and of an audio encoder, random data, caches
// rotated past the processor's own. `quick` runs fewer repeats and modes.
std::vector<BenchRow> bench_attention(Stream&, bool quick);

}  // namespace halftone

// The row of `halftone bench overhead` that needs the engine.
#pragma once
#include "bench_row.h"
#include "halftone/stream.h"

namespace halftone {

// Time of a token (norms, attention over 128 keys on average, sampling, every call) less that of
// its products alone, both measured by turns.
BenchRow bench_engine_overhead(Stream&, bool quick);

}  // namespace halftone

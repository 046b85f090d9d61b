// What this machine can do, measured with the threads of a stream: the roofs of `halftone bench`.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "bench/row.h"
#include "halftone/stream.h"

namespace halftone {

// Operations/s (a product and an addition are two) of independent fused multiply-adds in f32, of
// dot products of bf16 pairs and of int8 quadruples, at the ISA level in force. Without
// AVX-512 BF16 the second equals the first; without VNNI the third is 0.
double f32_roof(Stream&);
double bf16_roof(Stream&);
double int8_roof(Stream&);
// Bytes of buffers to use in turn so that none is found in a cache: at least `least`, twice the
// third-level cache where that is more.
int64_t beyond_caches(int64_t least);
// Bytes/s of reading `bytes` of memory, each thread its own part.
double read_roof(Stream&, int64_t bytes);
// Bytes/s read and written by copying half of `bytes` to the other half, each thread its part.
double copy_roof(Stream&, int64_t bytes, int repeats);

// Seconds of `repeats` calls of f(i), i counting from 0 for the rotation of buffers; one call goes
// before.
Timing median_seconds(int repeats, const std::function<void(int)>& f);
// Of measurements, at least one.
Timing timing_of(std::vector<double> seconds);

}  // namespace halftone

// What this machine can do, measured with the threads of a stream: the roofs of `halftone bench`.
#pragma once
#include <cstdint>
#include <functional>

#include "halftone/stream.h"

namespace halftone {

// FLOP/s of independent fused multiply-adds in f32 and of dot products of bf16 pairs, at the
// instruction level in force. Without AVX-512 BF16 the second equals the first.
double f32_roof(Stream&);
double bf16_roof(Stream&);
// Bytes/s of reading `bytes` of memory, each thread its own part.
double read_roof(Stream&, int64_t bytes);

// Median seconds of `repeats` calls of f(i), i counting from 0 for the rotation of buffers; one
// call goes before.
double median_seconds(int repeats, const std::function<void(int)>& f);

}  // namespace halftone

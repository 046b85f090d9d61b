// What a GPU's memory can do, for the roofs of `halftone bench --device`.
#pragma once
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// Reads every byte of a contiguous tensor once, by 16, and writes nothing.
void read_memory(const Tensor& from, Stream&);
// Of two tensors of one size, every byte of `from` to `to`.
void copy_memory(const Tensor& from, const Tensor& to, Stream&);

}  // namespace halftone

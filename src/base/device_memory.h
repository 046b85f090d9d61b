// Memory of any device: allocation, copies between devices, filling. Dispatches to backend.h.
#pragma once
#include <cstddef>
#include <memory>

#include "halftone/device.h"

namespace halftone {

class Stream;

// At least 64-byte aligned (256 on GPUs), uninitialised, released with the last owner.
// Error::out_of_memory with the bytes needed. On the CPU, released blocks of 1 MiB and more are
// kept for later ones of nearly their size, at most 128 MiB at a time.
std::shared_ptr<const void> allocate_memory(const Device&, size_t bytes, void** data);

// With a stream: in its order, and on a GPU beside the host; `from` must stay as it is until then.
// Without: everything submitted to the devices before has ended, and the bytes are there on return.
void copy_memory(const Device& to_device, void* to, const Device& from_device, const void* from,
                 size_t bytes, Stream* stream = nullptr);
void fill_memory(const Device&, void* to, int byte, size_t bytes, Stream* stream = nullptr);

}  // namespace halftone

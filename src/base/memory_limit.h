// What the machine could ever give.
#pragma once
#include <cstddef>

namespace halftone {

// Memory and swap of the machine, or the limit of the control group where that is less; read once.
// The system promises more than it has, and ends the process that takes it at its word.
size_t memory_limit();

}  // namespace halftone

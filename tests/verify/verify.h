// Kernels that hold an instruction against its model: each runs on the simulated sm_90a, where the
// host body is what is tested, and on a GPU where there is one, where the assembly is.
#pragma once
#include <cstdint>

#include "hw/target.h"

namespace halftone::verify {

struct Params {
  const uint32_t *a = nullptr, *b = nullptr, *c = nullptr;
  uint32_t* d = nullptr;
  uint32_t option = 0;
};

// Entries of a list of kernels, in the order of the list, made by its .cu and its _sim.cpp.
struct Entries {
  const void* const* gpu;  // null where the build has no CUDA
  void (*const* sim)(const void*);
};

#define HT_VERIFY_UNWRAP(...) __VA_ARGS__

}  // namespace halftone::verify

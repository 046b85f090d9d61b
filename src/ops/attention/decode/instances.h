// The instances of attention of one query token on the GPU: a function a file of entries.
#pragma once
#include <cstdint>

#include "halftone/dtype.h"

namespace halftone::attention_decode {

inline constexpr uint32_t kDims[] = {64, 128};

const void* plain_entry(Format, int64_t dim);  // caches in 16 bits
const void* codes_entry(Format, int64_t dim);

}  // namespace halftone::attention_decode

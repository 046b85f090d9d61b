// GPU entries of decode attention, by cache format and head size.
#pragma once
#include <cstdint>

#include "halftone/dtype.h"

namespace halftone::attention_decode {

inline constexpr uint32_t kDims[] = {64, 128};

const void* float16_entry(Format, int64_t dim);  // BF16 and FP16 caches
const void* quantised_entry(Format, int64_t dim);

}  // namespace halftone::attention_decode

// Largest numbers that files may state: far above every known model and far below what overflows a
// product of two.
#pragma once
#include <cstdint>
#include <limits>

namespace halftone {

inline constexpr int64_t kMaxWidth = int64_t{1} << 24;
inline constexpr int64_t kMaxCount = int64_t{1} << 16;
inline constexpr int64_t kMaxIndex = std::numeric_limits<int32_t>::max();

}  // namespace halftone

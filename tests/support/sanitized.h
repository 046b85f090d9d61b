// Whether a sanitizer watches: simulated GPUs are ten times as slow then, and see nothing more in
// the seventh format than in the first.
#pragma once

namespace halftone::test {

#if defined(HALFTONE_SANITIZED)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace halftone::test

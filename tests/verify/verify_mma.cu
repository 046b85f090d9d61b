#include "hw/entry.h"
#include "verify_mma.h"

namespace halftone::verify {
// What the host half (verify_mma_sim.cpp) takes the entries from.
extern const void* const kMmaGpu[];
#define HT_ENTRY(kernel, ...) hw::gpu_entry<HT_VERIFY_UNWRAP kernel>(),
const void* const kMmaGpu[] = {HT_VERIFY_MMA(HT_ENTRY)};
#undef HT_ENTRY
}  // namespace halftone::verify

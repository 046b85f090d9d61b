#include "hw/entry.h"
#include "verify_wgmma.h"

namespace halftone::verify {
// What the host half (verify_wgmma_sim.cpp) takes the entries from.
extern const void* const kWgmmaGpu[];
#define HT_ENTRY(kernel, ...) hw::gpu_entry<HT_VERIFY_UNWRAP kernel>(),
const void* const kWgmmaGpu[] = {HT_VERIFY_WGMMA(HT_ENTRY)};
#undef HT_ENTRY
}  // namespace halftone::verify

#include "hw/entry.h"
#include "verify_traffic.h"

namespace halftone::verify {
// What the host half (verify_traffic_sim.cpp) takes the entries from.
extern const void* const kTrafficGpu[];
#define HT_ENTRY(kernel, ...) hw::gpu_entry<HT_VERIFY_UNWRAP kernel>(),
const void* const kTrafficGpu[] = {HT_VERIFY_TRAFFIC(HT_ENTRY)};
#undef HT_ENTRY
}  // namespace halftone::verify

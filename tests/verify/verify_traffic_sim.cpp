#include "hw/entry.h"
#include "verify_traffic.h"

namespace halftone::verify {
#if HALFTONE_VERIFY_CUDA
extern const void* const kTrafficGpu[];
#else
static const void* const* const kTrafficGpu = nullptr;
#endif
#define HT_ENTRY(kernel, ...) hw::sim_body<HT_VERIFY_UNWRAP kernel>,
static void (*const kTrafficSim[])(const void*) = {HT_VERIFY_TRAFFIC(HT_ENTRY)};
const Entries kTrafficEntries = {kTrafficGpu, kTrafficSim};
}  // namespace halftone::verify

#include "hw/entry.h"
#include "verify_memory.h"

namespace halftone::verify {
// What the host half (verify_memory_sim.cpp) takes the entries from.
extern const void* const kMemoryGpu[];
#define HT_ENTRY(kernel) hw::gpu_entry<HT_VERIFY_UNWRAP kernel>(),
const void* const kMemoryGpu[] = {HT_VERIFY_MEMORY(HT_ENTRY)};
#undef HT_ENTRY
}  // namespace halftone::verify

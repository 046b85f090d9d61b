#include "hw/entry.h"
#include "verify_memory.h"

namespace halftone::verify {
#if HALFTONE_VERIFY_CUDA
extern const void* const kMemoryGpu[];
#else
static const void* const* const kMemoryGpu = nullptr;
#endif
#define HT_ENTRY(kernel) hw::sim_body<HT_VERIFY_UNWRAP kernel>,
static void (*const kMemorySim[])(const void*) = {HT_VERIFY_MEMORY(HT_ENTRY)};
const Entries kMemoryEntries = {kMemoryGpu, kMemorySim};
}  // namespace halftone::verify

#include "hw/entry.h"
#include "verify_mma.h"

namespace halftone::verify {
#if HALFTONE_VERIFY_CUDA
extern const void* const kMmaGpu[];
#else
static const void* const* const kMmaGpu = nullptr;
#endif
#define HT_ENTRY(kernel, ...) hw::sim_body<HT_VERIFY_UNWRAP kernel>,
static void (*const kMmaSim[])(const void*) = {HT_VERIFY_MMA(HT_ENTRY)};
const Entries kMmaEntries = {kMmaGpu, kMmaSim};
}  // namespace halftone::verify

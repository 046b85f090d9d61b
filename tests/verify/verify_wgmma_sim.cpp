#include "hw/entry.h"
#include "verify_wgmma.h"

namespace halftone::verify {
#if HALFTONE_VERIFY_CUDA
extern const void* const kWgmmaGpu[];
#else
static const void* const* const kWgmmaGpu = nullptr;
#endif
#define HT_ENTRY(kernel, ...) hw::sim_body<HT_VERIFY_UNWRAP kernel>,
static void (*const kWgmmaSim[])(const void*) = {HT_VERIFY_WGMMA(HT_ENTRY)};
const Entries kWgmmaEntries = {kWgmmaGpu, kWgmmaSim};
}  // namespace halftone::verify

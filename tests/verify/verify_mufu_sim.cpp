#include "hw/entry.h"
#include "verify_mufu.h"

namespace halftone::verify {
#if HALFTONE_VERIFY_CUDA
extern const void* const kMufuGpu[];
#else
static const void* const* const kMufuGpu = nullptr;
#endif
#define HT_ENTRY(name, ...) hw::sim_body<Mufu<mufu::name>>,
static void (*const kMufuSim[])(const void*) = {HT_VERIFY_MUFU(HT_ENTRY)
                                                    HT_VERIFY_MUFU_PAIR(HT_ENTRY)};
const Entries kMufuEntries = {kMufuGpu, kMufuSim};
}  // namespace halftone::verify

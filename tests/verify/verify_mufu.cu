#include "hw/entry.h"
#include "verify_mufu.h"

namespace halftone::verify {
// What the host half (verify_mufu_sim.cpp) takes the entries from.
extern const void* const kMufuGpu[];
#define HT_ENTRY(name, ...) hw::gpu_entry<Mufu<mufu::name>>(),
const void* const kMufuGpu[] = {HT_VERIFY_MUFU(HT_ENTRY) HT_VERIFY_MUFU_PAIR(HT_ENTRY)};
#undef HT_ENTRY
}  // namespace halftone::verify

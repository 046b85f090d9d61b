#include "hw/entry.h"
#include "verify_convert.h"

namespace halftone::verify {
// What the host half (verify_convert_sim.cpp) takes the entries from.
extern const void* const kConvertGpu[];
#define HT_ENTRY(name, ...) hw::gpu_entry<EveryFloat<conversion::name>>(),
const void* const kConvertGpu[] = {HT_VERIFY_CONVERT(HT_ENTRY)};
#undef HT_ENTRY
}  // namespace halftone::verify

#include "hw/entry.h"
#include "verify_convert.h"

namespace halftone::verify {
#if HALFTONE_VERIFY_CUDA
extern const void* const kConvertGpu[];
#else
static const void* const* const kConvertGpu = nullptr;
#endif
#define HT_ENTRY(name, ...) hw::sim_body<EveryFloat<conversion::name>>,
static void (*const kConvertSim[])(const void*) = {HT_VERIFY_CONVERT(HT_ENTRY)};
const Entries kConvertEntries = {kConvertGpu, kConvertSim};
}  // namespace halftone::verify

#include "hw/entry.h"
#include "verify_lane.h"

namespace halftone::verify {
#if HALFTONE_VERIFY_CUDA
extern const void* const kLaneGpu[];
#else
static const void* const* const kLaneGpu = nullptr;
#endif
#define HT_ENTRY(name, ...) hw::sim_body<Lanewise<lane::name>>,
static void (*const kLaneSim[])(const void*) = {HT_VERIFY_LANE(HT_ENTRY)};
const Entries kLaneEntries = {kLaneGpu, kLaneSim};
}  // namespace halftone::verify

#include "hw/entry.h"
#include "verify_lane.h"

namespace halftone::verify {
// What the host half (verify_lane_sim.cpp) takes the entries from.
extern const void* const kLaneGpu[];
#define HT_ENTRY(name, ...) hw::gpu_entry<Lanewise<lane::name>>(),
const void* const kLaneGpu[] = {HT_VERIFY_LANE(HT_ENTRY)};
#undef HT_ENTRY
}  // namespace halftone::verify

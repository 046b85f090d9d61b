// Global memory between the clusters of a launch: who knows what of whom. Coarse on purpose (a
// cluster is one agent), so that what it reports is certain.
#pragma once
#include "sim/memory/cluster_memory.h"

namespace halftone::sim {

void join_grid(ClusterMemory&);
void leave_grid(ClusterMemory&);
// fence.acq_rel of any of its threads.
void fence_grid(ClusterMemory&);

}  // namespace halftone::sim

// What kernels of every architecture ask for that have another way where an instruction is missing.
#pragma once
#include "hw/griddep.h"
#include "hw/target.h"
#if !defined(__CUDACC__)
#include "sim/sim.h"
#endif

namespace halftone::hw {

// Whether the device at hand has a feature. Where the GPU pass has not, what needs it must not be
// compiled either: `if constexpr (ThisTarget::has(feature))` around it.
template <Feature kFeature, class Target = ThisTarget>
HT_DEVICE bool present() {
#if defined(__CUDACC__)
  return Target::has(kFeature);
#else
  return available(kFeature, sim::arch());
#endif
}

// The halves of launch_dependents_and_wait(): griddepcontrol.wait, from which on a kernel may read
// what previous kernels write; and griddepcontrol.launch_dependents. No-ops before sm_90.
HT_DEVICE void pdl_wait(Site site = Site::current()) {
  if constexpr (ThisTarget::has(Feature::mbarrier_tx)) {
    if (present<Feature::mbarrier_tx>()) griddepcontrol_wait(site);
  }
}
HT_DEVICE void launch_dependents(Site site = Site::current()) {
  if constexpr (ThisTarget::has(Feature::mbarrier_tx)) {
    if (present<Feature::mbarrier_tx>()) griddepcontrol_launch_dependents(site);
  }
}

}  // namespace halftone::hw

// Programmatic launch: a kernel starts before the one ahead of it in the stream has ended.
#pragma once
#include "hw/target.h"
#if !defined(__CUDACC__)
#include "sim/sim.h"
#endif

namespace halftone::hw {

// Until the kernels ahead have ended and their writes are visible.
template <class Target = ThisTarget>
HT_DEVICE void griddepcontrol_wait(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "griddepcontrol exists from sm_90 on");
#if HT_GPU
  asm volatile("griddepcontrol.wait;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "griddepcontrol.wait", site);
  sim::grid_dependency_wait(site);
#endif
}

// The next kernel may start once every block has said so or has ended.
template <class Target = ThisTarget>
HT_DEVICE void griddepcontrol_launch_dependents(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "griddepcontrol exists from sm_90 on");
#if HT_GPU
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "griddepcontrol.launch_dependents", site);
  sim::grid_launch_dependents(site);
#endif
}

// The beginning of a kernel of every architecture that is launched programmatic where it can be:
// the next kernel's blocks may take their places, and this one's go on when the kernels ahead have
// ended. Before sm_90 they have.
template <class Target = ThisTarget>
HT_DEVICE void launch_dependents_and_wait(Site site = Site::current()) {
#if HT_GPU
  if constexpr (Target::has(Feature::mbarrier_tx)) {
    griddepcontrol_launch_dependents<Target>(site);
    griddepcontrol_wait<Target>(site);
  }
#elif !defined(__CUDACC__)
  if (!available(Feature::mbarrier_tx, sim::arch())) return;
  griddepcontrol_launch_dependents<Target>(site);
  griddepcontrol_wait<Target>(site);
#endif
}

}  // namespace halftone::hw

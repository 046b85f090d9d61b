// Feature: mbarrier_tx
#include "hw/griddep.h"
#include "instantiate.h"

namespace halftone::hw {

__global__ void instantiate_griddep() {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
}

}  // namespace halftone::hw

// Feature: setmaxnreg
#include "hw/mma/setmaxnreg.h"

#include "hw/thread.h"
#include "instantiate.h"

namespace halftone::hw {

__global__ void __launch_bounds__(256, 1) instantiate_setmaxnreg() {
  if (warp_index() < 4) {
    setmaxnreg_dec<40>();
  } else {
    setmaxnreg_inc<232>();
  }
}

}  // namespace halftone::hw

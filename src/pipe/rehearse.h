// A kernel's first steps on a multiprocessor wait for its instructions, which come from the L2:
// with some 300 clocks for a few of them a small kernel spends most of its time so. One that is
// launched before its turn can have them come while it waits.
#pragma once
#include "hw/barrier.h"
#include "hw/griddep.h"

namespace halftone::pipe {

// Runs `body(true)` when the turn has come, and if `rehearses` before that `body(false)`, by the
// same instructions: the body then reads and writes no memory but the block's own, and all of its
// threads leave it. For launches that fill no chip; in others a block's rehearsal delays the next.
template <class Body>
HT_DEVICE void take_turns_rehearsed(bool rehearses, const Body& body,
                                    hw::Site site = hw::Site::current()) {
  hw::let_next_start(site);
  HT_ROLLED
  for (uint32_t pass = rehearses ? 0 : 1; pass < 2; ++pass) {
    uint32_t now = pass;
#if HT_GPU
    asm volatile("" : "+r"(now));  // or the compiler would make a rehearsal of its own, and shorter
#endif
    if (now != 0) hw::wait_for_turn(site);
    body(now != 0);
    if (now == 0) hw::barrier_sync(site);
  }
}

}  // namespace halftone::pipe

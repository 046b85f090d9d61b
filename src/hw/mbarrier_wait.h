// Waiting for the phase of an mbarrier; see mbarrier.h.
#pragma once
#include <cstdint>

#include "hw/address.h"
#include "hw/thread.h"
#include "hw/types.h"

namespace halftone::hw {

// Whether the phase of this parity has ended. Does not wait. Use the result: the assembler drops a
// test whose result nobody reads, and with it the acquire.
template <Scope kScope = Scope::cta>
[[nodiscard]] HT_DEVICE bool mbarrier_test_wait(Mbarrier barrier, uint32_t parity,
                                                Site site = Site::current()) {
  uint32_t done = 0;
#if HT_GPU
  if constexpr (kScope == Scope::cta) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier.address.value), "r"(parity)
        : "memory");
  } else {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier.address.value), "r"(parity)
        : "memory");
  }
#elif !defined(__CUDACC__)
  done = sim::mbarrier_test_wait(sim::self(), barrier.address.value, parity, sim::Order::acquire,
                                 static_cast<sim::MemoryScope>(kScope), site);
#endif
  return done != 0;
}

// The same, but may sleep for a time the hardware chooses before it says no.
template <Scope kScope = Scope::cta, class Target = ThisTarget>
[[nodiscard]] HT_DEVICE bool mbarrier_try_wait(Mbarrier barrier, uint32_t parity,
                                               Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "mbarrier.try_wait exists from sm_90 on");
  uint32_t done = 0;
#if HT_GPU
  if constexpr (kScope == Scope::cta) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier.address.value), "r"(parity)
        : "memory");
  } else {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier.address.value), "r"(parity)
        : "memory");
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "mbarrier.try_wait", site);
  done = sim::mbarrier_try_wait(sim::self(), barrier.address.value, parity, sim::Order::acquire,
                                static_cast<sim::MemoryScope>(kScope), site);
#endif
  return done != 0;
}

// Waits until the phase of this parity has ended. With HALFTONE_WAIT_LIMIT defined, a GPU build
// tries that often and then ends the launch with an error instead of hanging.
template <Scope kScope = Scope::cta, class Target = ThisTarget>
HT_DEVICE void mbarrier_wait(Mbarrier barrier, uint32_t parity, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "mbarrier.try_wait exists from sm_90 on");
#if HT_GPU && defined(HALFTONE_WAIT_LIMIT)
  for (uint32_t tries = 0; !mbarrier_try_wait<kScope>(barrier, parity); tries++) {
    if (tries >= HALFTONE_WAIT_LIMIT) trap();
  }
#elif HT_GPU  // a loop in the assembly: nothing between two tries
  if constexpr (kScope == Scope::cta) {
    asm volatile(
        "{\n.reg .pred p;\nwait:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra wait;\n}" ::"r"(barrier.address.value),
        "r"(parity)
        : "memory");
  } else {
    asm volatile(
        "{\n.reg .pred p;\nwait:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra wait;\n}" ::"r"(barrier.address.value),
        "r"(parity)
        : "memory");
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "mbarrier.try_wait", site);
  while (!sim::mbarrier_try_wait(sim::self(), barrier.address.value, parity, sim::Order::acquire,
                                 static_cast<sim::MemoryScope>(kScope), site)) {
  }
#endif
}

// As mbarrier_wait, for architectures whose barriers count arrivals only (sm_80, sm_89).
HT_DEVICE void mbarrier_spin_wait(Mbarrier barrier, uint32_t parity, Site site = Site::current()) {
#if HT_GPU
  asm volatile(
      "{\n.reg .pred p;\nwait:\nmbarrier.test_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra wait;\n}" ::"r"(barrier.address.value),
      "r"(parity)
      : "memory");
#elif !defined(__CUDACC__)
  while (!sim::mbarrier_test_wait(sim::self(), barrier.address.value, parity, sim::Order::acquire,
                                  sim::MemoryScope::cta, site)) {
  }
#endif
}

}  // namespace halftone::hw

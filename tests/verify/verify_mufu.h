// Kernels of verify.h around the special-function unit: d[i] = f(a[i]).
#pragma once
#include "hw/memory.h"
#include "hw/mufu.h"
#include "hw/thread.h"
#include "verify.h"

namespace halftone::verify {

template <class Function>
struct Mufu {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t i = hw::block_index().x * kThreads + hw::thread_index().x;
    hw::store_global(p.d + i, Function::of(hw::load_global(p.a + i)));
  }
};

// X(name of a function of one float)
#define HT_VERIFY_MUFU(X) \
  X(ex2_approx)           \
  X(ex2_approx_ftz)       \
  X(lg2_approx)           \
  X(lg2_approx_ftz)       \
  X(rcp_approx)           \
  X(rcp_approx_ftz)       \
  X(rsqrt_approx)         \
  X(rsqrt_approx_ftz)     \
  X(sqrt_approx)          \
  X(sqrt_approx_ftz) X(sin_approx) X(sin_approx_ftz) X(cos_approx) X(cos_approx_ftz) X(tanh_approx)
// Likewise of a pair of halves.
#define HT_VERIFY_MUFU_PAIR(X) \
  X(ex2_approx_f16x2) X(ex2_approx_ftz_bf16x2) X(tanh_approx_f16x2) X(tanh_approx_bf16x2)

namespace mufu {
#define HT_STRUCT(name)                                                  \
  struct name {                                                          \
    HT_DEVICE static uint32_t of(uint32_t x) {                           \
      return std::bit_cast<uint32_t>(hw::name(std::bit_cast<float>(x))); \
    }                                                                    \
  };
HT_VERIFY_MUFU(HT_STRUCT)
#undef HT_STRUCT
#define HT_STRUCT(name)                                              \
  struct name {                                                      \
    HT_DEVICE static uint32_t of(uint32_t x) { return hw::name(x); } \
  };
HT_VERIFY_MUFU_PAIR(HT_STRUCT)
#undef HT_STRUCT
}  // namespace mufu

extern const Entries kMufuEntries;

}  // namespace halftone::verify

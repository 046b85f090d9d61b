// redux.sync on FP32: minimum and maximum over the lanes of a warp (sm_100a).
#pragma once
#include <cstdint>

#include "hw/target.h"
#if !defined(__CUDACC__)
#include <cmath>
#include <limits>

#include "sim/sim.h"
#endif

namespace halftone::hw {

// As the numbers are or their magnitudes; a NaN loses against any number, or wins (.NaN).
enum class Magnitude : uint8_t { value, abs };
enum class NanWins : uint8_t { no, yes };

#if !defined(__CUDACC__)
namespace model {
struct ReduxF32 {
  float value;
  float result;
};
// -0 counts as less than +0, as in min and max.
inline float redux_f32(const char* name, bool max, bool magnitude, bool nan_wins, float value,
                       uint32_t mask, const Site& site) {
  sim::require(Feature::redux_f32, name, site);
  ReduxF32 mine{value, 0};
  sim::warp_collective(
      name, mask, mine,
      [=](const sim::Lanes<ReduxF32>& lanes) {
        float best = std::numeric_limits<float>::quiet_NaN();
        bool nan = false;
        for (const uint32_t lane : lanes) {
          const float v = magnitude ? std::fabs(lanes[lane].value) : lanes[lane].value;
          nan |= std::isnan(v);
          const bool less = v < best || (v == best && std::signbit(v) && !std::signbit(best));
          const bool more = v > best || (v == best && !std::signbit(v) && std::signbit(best));
          if (std::isnan(best) || (!std::isnan(v) && (max ? more : less))) best = v;
        }
        // The canonical NaN.
        if (std::isnan(best) || (nan && nan_wins)) best = std::bit_cast<float>(0x7fffffffu);
        for (const uint32_t lane : lanes) lanes[lane].result = best;
      },
      site, {{{"mask", mask}}});
  return mine.result;
}
}  // namespace model
#endif

template <Magnitude>
struct MagnitudeName;
template <>
struct MagnitudeName<Magnitude::value> {
  static constexpr char text[] = "";
};
template <>
struct MagnitudeName<Magnitude::abs> {
  static constexpr char text[] = ".abs";
};
template <NanWins>
struct NanWinsName;
template <>
struct NanWinsName<NanWins::no> {
  static constexpr char text[] = "";
};
template <>
struct NanWinsName<NanWins::yes> {
  static constexpr char text[] = ".NaN";
};

template <Magnitude magnitude = Magnitude::value, NanWins nan = NanWins::no,
          class Target = ThisTarget>
HT_DEVICE float redux_max_f32(float value, uint32_t mask = 0xffffffff,
                              Site site = Site::current()) {
  static_assert(Target::has(Feature::redux_f32), "redux.f32 exists on sm_100a only");
  float result = 0;
#if HT_GPU
  asm volatile("redux.sync.max%3%4.f32 %0, %1, %2;"
               : "=f"(result)
               : "f"(value), "r"(mask), "C"(MagnitudeName<magnitude>::text),
                 "C"(NanWinsName<nan>::text)
               : "memory");
#elif !defined(__CUDACC__)
  result = model::redux_f32("redux.sync.max.f32", true, magnitude == Magnitude::abs,
                            nan == NanWins::yes, value, mask, site);
#endif
  return result;
}

template <Magnitude magnitude = Magnitude::value, NanWins nan = NanWins::no,
          class Target = ThisTarget>
HT_DEVICE float redux_min_f32(float value, uint32_t mask = 0xffffffff,
                              Site site = Site::current()) {
  static_assert(Target::has(Feature::redux_f32), "redux.f32 exists on sm_100a only");
  float result = 0;
#if HT_GPU
  asm volatile("redux.sync.min%3%4.f32 %0, %1, %2;"
               : "=f"(result)
               : "f"(value), "r"(mask), "C"(MagnitudeName<magnitude>::text),
                 "C"(NanWinsName<nan>::text)
               : "memory");
#elif !defined(__CUDACC__)
  result = model::redux_f32("redux.sync.min.f32", false, magnitude == Magnitude::abs,
                            nan == NanWins::yes, value, mask, site);
#endif
  return result;
}

}  // namespace halftone::hw

// Small seeded generator: the same numbers on every machine.
#pragma once
#include <cstdint>

namespace halftone::sim {

// One output of SplitMix64 from its state; also mixes keys.
constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random {
 public:
  Random() = default;
  Random(uint64_t seed, uint64_t stream) : state_(mix(seed ^ mix(stream))) {}
  uint32_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    return static_cast<uint32_t>(mix(state_) >> 32);
  }
  // Below `bound`; the bias of 2^-32 is of no concern here.
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(uint64_t{next()} * bound >> 32); }

 private:
  uint64_t state_ = 0;
};

}  // namespace halftone::sim

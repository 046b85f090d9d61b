// Choices of a random problem.
#pragma once
#include <algorithm>
#include <iterator>
#include <random>

#include "halftone/tensor.h"

namespace halftone::test {

// The same choices for the same seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  // 1 to `most`, every order of magnitude as often.
  int64_t extent(int64_t most) {
    int64_t octaves = 1;
    while (int64_t{1} << octaves < most) ++octaves;
    return std::min(most, 1 + below(int64_t{1} << (1 + below(octaves))));
  }
  template <class Range>
  auto of(const Range& range) {
    return std::data(range)[below(static_cast<int64_t>(std::size(range)))];
  }
  Format plain_format() {
    constexpr Format kPlain[] = {Format::f32, Format::f16, Format::bf16};
    return of(kPlain);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace halftone::test

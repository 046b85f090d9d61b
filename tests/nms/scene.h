// Boxes under test.
#pragma once
#include <random>
#include <vector>

#include "halftone/tensor.h"

namespace halftone::test {

// Crowded boxes on a grid of 1/64, scores with ties.
struct Scene {
  Tensor boxes, scores, classes;
};
inline Scene scene(int64_t n, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<float> boxes, scores;
  std::vector<int32_t> classes;
  const auto number = [&](uint64_t below) { return static_cast<float>(engine() % below) / 64; };
  for (int64_t i = 0; i < n; ++i) {
    const float x = number(256), y = number(256);
    boxes.insert(boxes.end(), {x, y, x + number(128), y + number(128)});
    scores.push_back(number(40));
    classes.push_back(static_cast<int32_t>(engine() % 5) - 2);
  }
  return {Tensor::from<float>(boxes, {n, 4}, Format::f32),
          Tensor::from<float>(scores, {n}, Format::f32),
          Tensor::from<int32_t>(classes, {n}, Format::i32)};
}

}  // namespace halftone::test

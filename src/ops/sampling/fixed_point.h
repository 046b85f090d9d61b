// Weights exp(score - largest) as integers: their sums are exact, so that a CPU and a GPU, which
// add in different orders, cut and draw alike.
#pragma once
#include <bit>
#include <cstdint>

#include "ops/sampling/portable_math.h"

namespace halftone {

// Bits of the largest weight, 2^bits: as many as a double has, less where the sum of a vocabulary
// would reach 2^62.
constexpr int weight_bits(uint64_t vocabulary) {
  const int room = 62 - static_cast<int>(std::bit_width(vocabulary));
  return room < 52 ? room : 52;
}
// Of exp(score - largest), from 0 to 1.
constexpr uint64_t fixed_weight(double weight, int bits) {
  return static_cast<uint64_t>(weight * static_cast<double>(uint64_t{1} << bits));
}
// The least sum that is a share of the total, at least 1.
constexpr uint64_t least_share(uint64_t total, float share) {
  const double sum = static_cast<double>(share) * static_cast<double>(total);
  const auto floor = static_cast<uint64_t>(sum);
  const uint64_t least = floor + (static_cast<double>(floor) < sum ? 1 : 0);
  return least < 1 ? 1 : least < total ? least : total;
}

// A token's part of the mean distance, by weight, of scores from the largest one, and that mean. As
// d exp(-d) <= 1/e, a part has no more bits than a weight.
constexpr uint64_t weighted_distance(uint64_t weight, double distance) {
  return static_cast<uint64_t>(static_cast<double>(weight) * distance);
}
constexpr double mean_distance(uint64_t parts, uint64_t weights) {
  return static_cast<double>(parts) / static_cast<double>(weights);
}

constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
// The draws of a sequence; draw `index` is 53 bits of `mix` (halftone/sampling.h).
constexpr uint64_t draw_key(uint64_t seed, uint64_t row) {
  return row == 0 ? seed : mix(seed + row * 0xd1342543de82ef95u);
}
constexpr uint64_t draw_bits(uint64_t key, uint64_t index) {
  return mix(key + (index + 1) * 0x9e3779b97f4a7c15u) >> 11;
}
// floor(total * bits / 2^53): below the total, as draws are below 1.
constexpr uint64_t draw_below(uint64_t total, uint64_t bits) {
  const uint64_t x = bits << 11, x0 = x & 0xffffffff, x1 = x >> 32;
  const uint64_t t0 = total & 0xffffffff, t1 = total >> 32;
  const uint64_t middle = t1 * x0 + (t0 * x0 >> 32);
  return t1 * x1 + (middle >> 32) + (((middle & 0xffffffff) + t0 * x1) >> 32);
}

}  // namespace halftone

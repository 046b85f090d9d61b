// What `halftone inspect` can look at; each gives a figure or an Error that names the option.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "inspect/figure.h"
#include "tile/swizzle.h"

namespace halftone::app {

struct InspectOptions {
  std::string subject, value;
  std::string swizzle, form = "a", matrix = "m8n8", unit, operand, major = "k", shape, address;
  std::optional<int64_t> pitch, padding, base, row, chunk, count, bytes, across, bits, mn, k, rows,
      num, split, m, n, ctas, columns;
  bool weight_stationary = false;
};

// Bits of shared memory.
Figure swizzle_figure(const InspectOptions&);
Figure box_figure(const InspectOptions&);     // tensor copies
Figure matrix_figure(const InspectOptions&);  // ldmatrix, stmatrix
Figure access_figure(const InspectOptions&);
Figure operand_figure(const InspectOptions&);
// Registers and tensor memory.
Figure fragment_figure(const InspectOptions&);
Figure tensor_shape_figure(const InspectOptions&);
Figure tensor_copy_figure(const InspectOptions&);
Figure accumulator_figure(const InspectOptions&);
Figure scales_figure(const InspectOptions&);
Figure descriptor_figure(const InspectOptions&);

// `fallback` where the option is not given; unknown_choice else.
tile::Swizzle swizzle_option(const InspectOptions&, tile::Swizzle fallback);
// The word of an option, one of `choices`.
std::string choice_option(const char* option, const std::string& word,
                          const std::vector<std::string>& choices);
std::string hex(uint64_t value, int digits = 3);

// Evaluates e.g. "lane / 4 * 128 + lane % 4 * 16 ^ 32" for a lane: numbers, `lane`, parentheses and
// the operators of C without sign: * / % + - << >> & ^ |. An Error names the place of a mistake.
uint32_t lane_expression(const std::string& text, uint32_t lane);

}  // namespace halftone::app

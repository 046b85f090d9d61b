// One line of `halftone check`: format error apart from kernel error.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace halftone {

struct AccuracyRow {
  std::string mode, data;
  // FP64 on the quantised operands against FP64 on the original ones.
  double format_cosine = 1, format_relative_l2 = 0, format_max = 0;
  // The kernel against FP64 on the same quantised operands.
  double kernel_cosine = 1, kernel_relative_l2 = 0, kernel_max = 0;
  // Root mean square of the kernel's difference from FP64 on the original operands; of attention.
  std::optional<double> total_rmse;
  std::string worst;  // index of the element with the largest format error
  // How often the kernel ran, and how many runs gave other bits than the first.
  int64_t runs = 1, differing_runs = 0;
  std::string refused;  // why the device has no kernel for it; its numbers are void then
};

}  // namespace halftone

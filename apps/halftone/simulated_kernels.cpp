#include "simulated_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bug.h"
#include "halftone/tensor.h"
#if HALFTONE_HAS_LADDER
#include "ladder.h"
#include "matrices.h"
#endif

namespace halftone::app {

namespace {

#if HALFTONE_HAS_LADDER
// C = A B^T in bf16, every element against FP64.
std::string product(int step, Stream& stream, int64_t m, int64_t n, int64_t k) {
  const std::vector<uint16_t> a = ladder::random_matrix(m, k, 1),
                              b = ladder::random_matrix(n, k, 2);
  std::vector<uint16_t> c(static_cast<size_t>(m * n), 0xffff);  // NaN
  const auto on_device = [&](const std::vector<uint16_t>& values, int64_t rows, int64_t columns) {
    return Tensor::copy_of(values.data(), values.size() * 2, {rows, columns}, Format::bf16)
        .to(stream.device());
  };
  const Tensor result = on_device(c, m, n);
  ladder::multiply(step, on_device(a, m, k), on_device(b, n, k), result, stream);
  const Tensor back = result.to(Device::cpu());
  std::copy_n(back.data<uint16_t>(), c.size(), c.data());
  const ladder::Distance d = ladder::distance(a, b, c, m, n, k, m);
  return fmt::format(
      "relative error {:.2g} against FP64; the worst element, [{}, {}], uses {:.2g} of what its "
      "rounding allows{}",
      d.relative, d.row, d.column, d.worst,
      d.unwritten == 0 ? "" : fmt::format("; {} elements are NaN", d.unwritten));
}
#endif

}  // namespace

std::vector<SimulatedKernel> simulated_kernels() {
  std::vector<SimulatedKernel> all;
#if HALFTONE_HAS_LADDER
  for (const ladder::Step& step : ladder::steps()) {
    SimulatedKernel kernel;
    kernel.name = fmt::format("ladder:{}", step.number);
    kernel.summary = fmt::format("bf16 product, {}: {}", step.name, step.idea);
    kernel.arch = step.arch;
    kernel.extent = {"m", "n", "k"};
    kernel.size = {256, 256, 128};
    kernel.run = [number = step.number](Stream& stream, const std::vector<int64_t>& size) {
      return product(number, stream, size[0], size[1], size[2]);
    };
    all.push_back(std::move(kernel));
  }
#endif
  for (const bugs::Bug& bug : bugs::catalogue()) {
    for (const bool fixed : {false, true}) {
      SimulatedKernel kernel;
      kernel.name = std::string("bug:") + bug.name + (fixed ? ":fixed" : "");
      kernel.summary = fixed ? "the same, fixed" : bug.summary;
      kernel.arch = bug.arch;
      kernel.run = [&bug, fixed](Stream& stream, const std::vector<int64_t>&) {
        bugs::run(bug, fixed, stream);
        return std::string();
      };
      all.push_back(std::move(kernel));
    }
  }
  return all;
}

}  // namespace halftone::app

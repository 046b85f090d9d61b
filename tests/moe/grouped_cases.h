// Products of groups of rows, on any device against FP64.
#pragma once
#include <utility>

#include "halftone/grouped_matmul.h"
#include "moe/gpu_cases.h"

namespace halftone::test {

inline const std::vector<WeightSpec> kGroupedSpecs = {
    {Format::bf16},
    {Format::fp8_e4m3, true, {Format::f32, 1, 0}},
    {Format::fp8_e4m3, true, {Format::f32, 128, 128}},
    {Format::mxfp8, true, {Format::ue8m0, 1, 32}},
    {Format::int8, true, {Format::f16, 1, 64}},
    {Format::mxfp4, true, {Format::ue8m0, 1, 32}},
    {Format::nvfp4, true, {Format::fp8_e4m3, 1, 16}, true}};

inline Tensor counts_of(const std::vector<int32_t>& counts) {
  return Tensor::from<int32_t>(counts, {static_cast<int64_t>(counts.size())}, Format::i32);
}

struct Grouped {
  Tensor x, counts, weight;
  std::vector<Weight> matrices;
  bool masked;
  int64_t first(int64_t group) const {
    if (masked) return group * (x.size(0) / counts.size(0));
    int64_t sum = 0;
    for (int64_t g = 0; g < group; ++g) sum += counts.data<int32_t>()[g];
    return sum;
  }
};

inline Grouped grouped(const WeightSpec& spec, const std::vector<int32_t>& counts, int64_t rows,
                       int64_t n, int64_t k, bool masked) {
  Grouped g{random_tensor({rows, k}, Format::bf16, 5), {}, {}, {}, masked};
  const auto groups = static_cast<int64_t>(counts.size());
  g.counts = counts_of(counts);
  for (int64_t i = 0; i < groups; ++i) {
    g.matrices.push_back(random_weight(spec, n, k, static_cast<uint64_t>(20 + i)));
  }
  const auto at = [&](bool scales) {
    return [&g, scales](int64_t e, int64_t i) {
      const Tensor& m = g.matrices[static_cast<size_t>(e)].tensor;
      return std::pair(scales ? m.scales() : m, i);
    };
  };
  g.weight = stacked(groups, n, k, spec.format, at(false));
  if (spec.scaled) {
    const Tensor& one = g.matrices[0].tensor;
    const Tensor scales =
        stacked(groups, one.scales().size(0), one.scales().size(1), spec.scaling.format, at(true));
    g.weight = g.weight.quantized(spec.scaling, scales, one.tensor_scale());
  }
  return g;
}

// Filled before with what rows of no group keep.
inline std::vector<float> grouped_product(const Grouped& g, Stream& stream,
                                          Format out_format = Format::f32,
                                          std::optional<QuantizeOptions> quantize_x = {},
                                          bool batch_invariant = false) {
  const Device& device = stream.device();
  GroupedProblem p;
  p.groups = g.counts.size(0), p.rows = g.x.size(0), p.n = g.weight.size(1), p.k = g.x.size(1);
  p.masked = g.masked;
  p.weight = g.weight.format(), p.scaled = g.weight.has_scales();
  if (p.scaled) p.scaling = g.weight.scaling();
  p.x = g.x.format(), p.x_scaled = g.x.has_scales();
  if (p.x_scaled) p.x_scaling = g.x.scaling();
  p.out = out_format, p.quantize_x = quantize_x, p.batch_invariant = batch_invariant;
  const auto all = static_cast<size_t>(p.rows * p.n);
  const Shape shape{p.rows, p.n};
  const Tensor before =
      out_format == Format::f32
          ? Tensor::from<float>(std::vector<float>(all, -7), shape, out_format)
          : Tensor::from<uint16_t>(std::vector<uint16_t>(all, 0xc0e0), shape, out_format);  // bf16
  const Tensor out = before.to(device);
  run(plan(p, device), {g.x.to(device), g.counts.to(device), g.weight.to(device), out}, stream);
  stream.synchronize();
  return to_floats(out.to(Device::cpu()));
}

inline Expected expected(const Grouped& g) {
  const int64_t rows = g.x.size(0), n = g.weight.size(1), k = g.x.size(1);
  const std::vector<float> xs = to_floats(g.x);
  Expected e;
  e.values.assign(static_cast<size_t>(rows * n), -7);
  e.magnitudes.assign(e.values.size(), 0);
  for (int64_t i = 0; i < g.counts.size(0); ++i) {
    for (int64_t r = g.first(i); r < g.first(i) + g.counts.data<int32_t>()[i]; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t l = 0; l < k; ++l) {
          const double product =
              xs[static_cast<size_t>(r * k + l)] *
              g.matrices[static_cast<size_t>(i)].values[static_cast<size_t>(j * k + l)];
          sum += product, magnitude += std::abs(product);
        }
        e.values[static_cast<size_t>(r * n + j)] = static_cast<float>(sum);
        e.magnitudes[static_cast<size_t>(r * n + j)] =
            one_chain_roundings(k) * 0x1p-24 * magnitude + 0x1p-24 * std::abs(sum);
      }
    }
  }
  return e;
}

inline void expect_groups(const std::vector<Device>& devices, const WeightSpec& spec, bool masked) {
  SCOPED_TRACE(concat(label(spec), masked ? " masked" : " contiguous"));
  const Grouped g = grouped(spec, {0, 33, 1, 20}, masked ? 132 : 60, 136, 256, masked);
  const Expected e = expected(g);
  for (const Device& device : devices) {
    SCOPED_TRACE(device.name());
    Stream stream(device);
    EXPECT_TRUE(within(grouped_product(g, stream), e.values, e.magnitudes));
  }
  Grouped wrong = g;  // a row more of the last group is seen
  wrong.counts = counts_of({0, 33, 1, 21});
  Stream stream;
  EXPECT_FALSE(within(grouped_product(wrong, stream), e.values, e.magnitudes));
}

}  // namespace halftone::test

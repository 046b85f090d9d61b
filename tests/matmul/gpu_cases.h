// Products on a GPU, real or simulated, against FP64.
#pragma once
#include <algorithm>
#include <utility>

#include "halftone/matmul.h"
#include "halftone/simulator.h"
#include "matmul/epilogue.h"
#include "matmul/weights.h"
#include "ops/matmul/together.h"
#include "support/named_kernel.h"

namespace halftone::test {

// How often a term of the sum is rounded, in units of 2^-24 of the sum of magnitudes. An
// accumulation of at most 12 MMAs of 16 elements starts from zero; on sm_80 one is two sums of 8
// products, each of whose 9 addends is cut off 24 bits below the largest and whose result is cut
// off at 23: 11 units a sum (from sm_90 on 10.5 an MMA). Then, at most for every 32 elements, the
// sum times its scales is promoted, two roundings; 8 warps, 3 terms of x, 2 scales of the rows, 1
// of a scale, 1 of x rounded, bias and residual. The terms of x have 1.01 of its magnitude. The
// tiled GEMM on Hopper may be one accumulation over K, or split-K of up to 8 that are added.
inline double gpu_roundings(int64_t k, double chain) {
  return 1.01 * (chain + 2 * static_cast<double>((k + 31) / 32) + 8 + 3 + 2 + 1 + 1 + 2);
}
inline double gpu_roundings(int64_t k) { return gpu_roundings(k, 12 * 22); }
inline double one_chain_roundings(int64_t k) {
  return gpu_roundings(k, std::max(12 * 22.0, 10.5 * static_cast<double>((k + 15) / 16)));
}
inline std::vector<double> gpu_bounds(const Expected& e, int64_t k, Format out,
                                      double largest_operand, bool one_chain = false) {
  std::vector<double> b;
  for (size_t i = 0; i < e.values.size(); ++i) {
    // What lies below the smallest f32, or the smallest bf16 of a term, is lost.
    const double sum =
        (one_chain ? one_chain_roundings(k) : gpu_roundings(k)) * 0x1p-24 * e.magnitudes[i] +
        3.0 * static_cast<double>(k) * 0x1p-126 * largest_operand;
    b.push_back(sum + unit_roundoff(out) * (std::abs(e.values[i]) + sum) +
                (out == Format::f16 ? 0x1p-25 : 0x1p-149));
  }
  return b;
}

// What the kernel of Hopper for one row may lose of x beside: f16 has two parts of 33 binades of
// it, the lower one in multiples of 2^-72 of the largest element, half of which an element is off.
inline double row_loss(const std::vector<float>& x, const std::vector<double>& w) {
  double largest_x = 0, largest_w = 0;
  for (const float v : x) largest_x = std::max(largest_x, std::abs(static_cast<double>(v)));
  for (const double v : w) largest_w = std::max(largest_w, std::abs(v));
  return static_cast<double>(x.size()) * 0x1p-73 * largest_x * largest_w;
}

// The problem that matmul() makes of these.
inline MatmulProblem problem_of(const Tensor& x, const Tensor& weight, const MatmulOptions& o) {
  MatmulProblem p;
  const bool halves = o.gated && !o.up.defined();  // of one tensor
  p.m = x.numel() / x.size(-1), p.k = x.size(-1);
  p.n = weight.size(o.weight_transposed ? 1 : 0) / (halves ? 2 : 1);
  p.x = x.format(), p.x_scaled = x.has_scales();
  if (p.x_scaled) p.x_scaling = x.scaling();
  p.weight = weight.format(), p.scaled = weight.has_scales();
  if (p.scaled) p.scaling = weight.scaling();
  p.out = o.quantize_out ? o.quantize_out->format
                         : o.out.value_or(is_plain_float(p.x) ? p.x : Format::bf16);
  p.bias = o.bias.defined(), p.residual = o.residual.defined(), p.separate_up = o.up.defined();
  if (o.norm.defined()) p.norm = MatmulNorm{o.norm_eps, o.norm.format()};
  p.quantize_x = o.quantize_x, p.quantize_out = o.quantize_out;
  p.activation = o.activation, p.gated = o.gated, p.interleaved = o.interleaved;
  p.weight_transposed = o.weight_transposed, p.accumulate = o.accumulate;
  p.tf32 = o.tf32, p.library = o.library;
  return p;
}

// The GEMM on the stream's device, back on the CPU, by the kernel that the test names.
inline Tensor matmul_on(Stream& stream, const Tensor& x, const Tensor& weight,
                        const MatmulOptions& options = {}) {
  const Device& device = stream.device();
  static_cast<void>(planned(problem_of(x, weight, options), device));
  MatmulOptions there = options;
  there.bias = options.bias.defined() ? options.bias.to(device) : Tensor();
  there.residual = options.residual.defined() ? options.residual.to(device) : Tensor();
  there.up = options.up.defined() ? options.up.to(device) : Tensor();
  const Tensor y = matmul(x.to(device), weight.to(device), there, stream);
  stream.synchronize();
  return y.to(Device::cpu());
}

// Products of one x by random weights of these many rows, results in f32, the middle one without a
// bias; and the same once more, for results of other runs.
struct SharedX {
  std::vector<MatmulPlan> plans;
  std::vector<MatmulTensors> tensors, again;

  SharedX(const Device& device, const WeightSpec& spec, const Tensor& x,
          const std::vector<int64_t>& extents, const std::vector<bool>& constant) {
    for (size_t i = 0; i < extents.size(); ++i) {
      const int64_t m = x.size(0), n = extents[i], k = x.size(1);
      MatmulProblem p;
      p.m = m, p.n = n, p.k = k;
      p.x = Format::bf16, p.weight = spec.format, p.out = Format::f32;
      p.scaled = spec.scaled, p.scaling = spec.scaling;
      p.bias = i != 1, p.static_weights = constant[i];
      plans.push_back(planned(p, device));
      MatmulTensors t;
      t.x = x;
      t.weight = random_weight(spec, n, k, static_cast<uint64_t>(n)).tensor.to(device);
      if (p.bias) t.bias = random_tensor({n}, Format::f32, 6).to(device);
      for (auto* list : {&tensors, &again}) {
        t.out = Tensor::zeros({m, n}, Format::f32, device);
        list->push_back(t);
      }
    }
  }
  // Whether one launch, without a race, took those from `first` on; `stream` is a strict simulator.
  bool run_at_once(Stream& stream, size_t first = 0) const {
    std::vector<MatmulCall> calls;
    for (size_t i = first; i < plans.size(); ++i) calls.push_back({&plans[i], &tensors[i]});
    const uint64_t before = simulator_report(stream).launches;
    const bool taken = run_fused(calls, stream);
    const SimulatorReport report = simulator_report(stream);
    EXPECT_TRUE(report.clean()) << to_string(report);
    EXPECT_EQ(report.launches - before, taken ? 1u : 0u);
    return taken;
  }
  // The results from `first` on are those of a launch each.
  void expect_bits_of_runs_apart(Stream& stream, size_t first = 0) const {
    for (size_t i = first; i < plans.size(); ++i) {
      run(plans[i], again[i], stream);
      stream.synchronize();
      EXPECT_EQ(to_floats(tensors[i].out.to(Device::cpu())),
                to_floats(again[i].out.to(Device::cpu())))
          << i;
    }
  }
};
// Strict, under the adversarial schedule.
inline void configure_strict(Stream& stream, uint64_t seed = 5) {
  configure(stream, {.severity = SimulatorOptions::Severity::strict,
                     .numerics = SimulatorOptions::Numerics::fast,
                     .schedule = SimulatorOptions::Schedule::adversarial,
                     .seed = seed,
                     .throws = false});
}

struct GpuCase {
  WeightSpec weight;
  WeightSpec x;
  int64_t m, n, k;
  Format out = Format::f32;
  MatmulLibrary library = MatmulLibrary::automatic;
};

inline bool in_tf32(const GpuCase& c) {
  return c.library == MatmulLibrary::cublaslt && c.x.format == Format::f32;
}
inline MatmulProblem problem_of(const GpuCase& c) {
  MatmulProblem p;
  p.m = c.m, p.n = c.n, p.k = c.k, p.x = c.x.format, p.x_scaled = c.x.scaled;
  p.x_scaling = c.x.scaling, p.weight = c.weight.format, p.scaled = c.weight.scaled;
  p.scaling = c.weight.scaling, p.out = c.out, p.library = c.library, p.tf32 = in_tf32(c);
  return p;
}
inline std::string kernel_of(const GpuCase& c, const Device& device) {
  return describe(plan(problem_of(c), device));
}

// What wgmma in FP8 may lose of one output, whose products are given: it adds 32 products to a sum
// and cuts all 33 off 13 bits below the largest, then the result. Four times from zero.
inline double fp8_loss(const std::vector<double>& products) {
  double loss = 0;
  for (size_t begin = 0; begin < products.size(); begin += 128) {
    double largest = 0, sum = 0;
    for (size_t i = begin; i < std::min(begin + 128, products.size()); ++i) {
      sum += products[i];
      largest = std::max(largest, std::abs(products[i]));
      if (i % 32 == 31) largest = std::max(largest, std::abs(sum));
    }
    loss += 4 * 34 * 0x1p-13 * 1.02 * largest;  // sums have a loss of their own, below 2 %
  }
  return loss;
}

// The expected result of a GEMM, and its error bound.
struct BoundedProduct {
  std::vector<float> values;
  std::vector<double> bounds;
};
inline BoundedProduct bounded_product(const GpuCase& c, const Weight& x, const Weight& w,
                                      const Device& device) {
  Expected e;
  const std::string kernel = kernel_of(c, device);
  const bool cublaslt = kernel.find("cublaslt") != std::string::npos;
  // cuBLASLt without fast accumulation promotes as often as Halftone's own kernel, and with scales
  // of blocks it must: they are those of 128 elements of K, which are accumulated from zero,
  // scaled and promoted into a sum in f32. That is three roundings where gpu_roundings counts
  // eight.
  const bool in_fp8 =
      kernel.find("in FP8") != std::string::npos || (cublaslt && c.x.format == Format::fp8_e4m3);
  std::vector<double> products(static_cast<size_t>(c.k)), losses;
  double largest = 1;
  for (const double v : w.values) largest = std::max(largest, std::abs(v));
  for (const double v : x.values) largest = std::max(largest, std::abs(v));
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      // Four sums each, so that none waits for itself.
      double sums[4] = {}, magnitudes[4] = {};
      const double* of_x = &x.values[static_cast<size_t>(i * c.k)];
      const double* of_w = &w.values[static_cast<size_t>(j * c.k)];
      for (int64_t l = 0; l < c.k; ++l) {
        const double product = of_x[l] * of_w[l];
        sums[l % 4] += product, magnitudes[l % 4] += std::abs(product);
        products[static_cast<size_t>(l)] = product;
      }
      const double sum = sums[0] + sums[1] + sums[2] + sums[3];
      const double magnitude = magnitudes[0] + magnitudes[1] + magnitudes[2] + magnitudes[3];
      // TF32 has 10 bits of a fraction; bits beyond them are cut off, of both operands.
      losses.push_back(in_fp8 ? fp8_loss(products) : in_tf32(c) ? 1.01 * 0x1p-9 * magnitude : 0);
      e.values.push_back(static_cast<float>(sum));
      e.magnitudes.push_back(magnitude);
    }
  }
  for (float& v : e.values) {
    if (c.out == Format::f16 && std::abs(v) >= 65520.0f) v = std::copysign(INFINITY, v);
  }
  const bool one_chain = cublaslt || (c.m > 8 && device.arch() == Arch::sm_90a);
  std::vector<double> bounds = gpu_bounds(e, c.k, c.out, largest, one_chain);
  if (kernel.find("gemv_sm90") != std::string::npos) {
    losses.assign(losses.size(),
                  row_loss(std::vector<float>(x.values.begin(), x.values.end()), w.values));
  }
  for (size_t i = 0; i < bounds.size(); ++i) bounds[i] += losses[i] * (1 + unit_roundoff(c.out));
  return {std::move(e.values), std::move(bounds)};
}

inline void expect_product(Stream& stream, const GpuCase& c, uint64_t seed,
                           Data data = Data::normal) {
  SCOPED_TRACE(concat(label(c.x), " x ", label(c.weight), " ", c.m, "x", c.n, "x", c.k, " out ",
                      name(c.out), " on ", stream.device().name()));
  const Weight w = random_weight(c.weight, c.n, c.k, seed, data);
  const Weight x = random_weight(c.x, c.m, c.k, seed + 1, data);
  const BoundedProduct want = bounded_product(c, x, w, stream.device());
  MatmulOptions options;
  options.out = c.out, options.library = c.library, options.tf32 = in_tf32(c);
  const Tensor y = matmul_on(stream, x.tensor, w.tensor, options);
  EXPECT_TRUE(within(to_floats(y), want.values, want.bounds));
}

inline void check_epilogue(Stream& stream, const MatmulOptions& options, const Tensor& x,
                           const Tensor& w) {
  check_epilogue(options, x, [&](const MatmulOptions& o) { return matmul_on(stream, x, w, o); });
}

// Every weight format with every plain x, sizes around the tiles.
inline std::vector<GpuCase> plain_cases(int64_t m, int64_t n, int64_t k) {
  std::vector<GpuCase> cases;
  for (const WeightSpec& spec : weight_specs()) {
    const int64_t step = k_step(spec), depth = (k + step - 1) / step * step;
    for (const Format x : {Format::bf16, Format::f32, Format::f16}) {
      cases.push_back({spec, {x}, m, n, depth, x == Format::f16 ? Format::f16 : Format::f32});
    }
  }
  return cases;
}

}  // namespace halftone::test

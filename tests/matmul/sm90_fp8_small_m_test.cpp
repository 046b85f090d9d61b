// The FP8 small-M GEMM on a simulated sm_90a.
#include <array>

#include "matmul/fp8_few_cases.h"
#include "support/sanitized.h"

namespace halftone::test {
namespace {

using F = Format;

TEST(MatmulSm90Fp8SmallM, EveryTile) {
  for (const Fp8FewCase& c : kFp8FewCases) {
    if (kSanitized && c.problem.m * c.problem.n * c.problem.k > int64_t{1} << 27) continue;
    Stream stream(Device::simulator(Arch::sm_90a));
    configure_strict(stream);
    const GpuCase& problem = c.problem;
    const std::string kernel = kernel_of(problem, stream.device());
    EXPECT_NE(kernel.find(concat(c.kernel, ", workspace")), std::string::npos) << kernel;
    expect_product(stream, problem, 5);
    const SimulatorReport report = simulator_report(stream);
    EXPECT_TRUE(report.clean()) << kernel << "\n" << to_string(report);
    EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal) << kernel;
  }
}

// Whatever the order of warps and blocks: the same bits.
TEST(MatmulSm90Fp8SmallM, BitsUnderEverySchedule) {
  const Tensor x = random_weight({F::fp8_e4m3, true, {F::f32, 1, 128}}, 40, 9 * 1024, 3).tensor;
  const Tensor w = random_weight({F::fp8_e4m3, true, {F::f32, 128, 128}}, 72, 9 * 1024, 4).tensor;
  std::vector<float> first;
  for (const uint64_t seed : {1, 2, 3}) {
    Stream stream(Device::simulator(Arch::sm_90a));
    configure_strict(stream, seed);
    const std::vector<float> y = to_floats(matmul_on(stream, x, w));
    EXPECT_TRUE(simulator_report(stream).clean()) << to_string(simulator_report(stream));
    if (first.empty()) first = y;
    EXPECT_EQ(y, first) << seed;
  }
}

// Biases where results are rounded and no more, with and without split-K; activations, residuals
// and gates of every tile.
TEST(MatmulSm90Fp8SmallM, EveryEpilogue) {
  Stream stream(Device::simulator(Arch::sm_90a));
  configure_strict(stream);
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{40, 256, 256},
                                {40, 256, 2048},
                                {70, 256, 256},
                                {9, 67 * 256, 128},
                                {65, 67 * 256, 128}}) {
    if (kSanitized && n > 1000) continue;
    SCOPED_TRACE(concat(m, " x ", n, " x ", k));
    // Small, as the bound of an activation is one of its result.
    const Tensor x =
        quantize(random_tensor({m, k}, F::f32, 3, Data::normal), parse_quantization("fp8_1x128"));
    const Tensor w = random_weight({F::fp8_e4m3, true, {F::f32, 128, 128}}, n, k, 4).tensor;
    MatmulOptions o;
    o.out = F::bf16;
    o.bias = random_tensor({n}, F::bf16, 6);
    check_epilogue(stream, o, x, w);
    o.activation.kind = Activation::silu;
    o.residual = random_tensor({m, n}, F::bf16, 7);
    check_epilogue(stream, o, x, w);
    if (k > 256) continue;  // twice the outputs have another split-K factor
    o.activation.kind = Activation::identity;
    o.residual = random_tensor({m, n / 2}, F::bf16, 7);
    o.gated = GatedActivation::swiglu();
    check_epilogue(stream, o, x, w);
    EXPECT_TRUE(simulator_report(stream).clean()) << to_string(simulator_report(stream));
  }
}

// Results whose rows lie on 16 bytes, though they have no whole fours of outputs, and room behind.
TEST(MatmulSm90Fp8SmallM, RoomBehindRows) {
  const Device device = Device::simulator(Arch::sm_90a);
  Stream stream(device);
  configure_strict(stream);
  const int64_t m = 12, n = 70, room = 80, k = 256;
  const WeightSpec row{F::fp8_e4m3, true, {F::f32, 1, 0}};
  const GpuCase c{{F::fp8_e4m3, true, {F::f32, 128, 128}}, row, m, n, k, F::bf16};
  MatmulTensors t;
  t.x = random_weight(row, m, k, 3).tensor.to(device);
  t.weight = random_weight(c.weight, n, k, 4).tensor.to(device);
  std::vector<float> y[2];
  for (const int64_t columns : {n, room}) {
    const std::vector<float> before(static_cast<size_t>(m * columns), 1);
    const Tensor all =
        convert(Tensor::from<float>(before, {m, columns}, F::f32), F::bf16).to(device);
    t.out = all.slice(1, 0, n);
    run(plan(problem_of(c), device), t, stream);
    stream.synchronize();
    const std::vector<float> rows = to_floats(all.to(Device::cpu()));
    for (int64_t i = 0; i < m * columns; ++i) {
      const float value = rows[static_cast<size_t>(i)];
      if (i % columns < n) {
        y[columns == room].push_back(value);
      } else {
        EXPECT_EQ(value, 1) << i;
      }
    }
  }
  EXPECT_EQ(y[0], y[1]);
  EXPECT_TRUE(simulator_report(stream).clean()) << to_string(simulator_report(stream));
}

}  // namespace
}  // namespace halftone::test

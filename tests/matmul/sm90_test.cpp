// The tiled GEMMs on a simulated sm_90a.
#include <array>
#include <tuple>

#include "halftone/activation.h"
#include "matmul/gpu_cases.h"
#include "support/sanitized.h"

namespace halftone::test {
namespace {

using F = Format;
using Options = SimulatorOptions;

const WeightSpec kBf16{F::bf16}, kF16{F::f16};
// A weight for every type and scale mode.
const std::vector<WeightSpec> kSpecs = {
    kBf16,
    {F::fp8_e4m3, true, {F::f32, 1, 0}},
    {F::fp8_e4m3, true, {F::f32, 128, 128}},
    {F::mxfp8, true, {F::ue8m0, 1, 32}},
    {F::fp8_e5m2, true, {F::f32, 1, 0}},
    {F::fp8_e5m2, true, {F::f32, 1, 64}},
    {F::int8, true, {F::f32, 1, 0}},
    {F::int8, true, {F::f16, 1, 64}},
    {F::int8, true, {F::f32, 1, 32}},
    {F::mxfp4, true, {F::ue8m0, 1, 32}},
    {F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true},
    {F::int4, true, {F::bf16, 1, 128, ScaleLayout::linear, true}},
    {F::int4, true, {F::f16, 1, 64}},
    {F::int4, true, {F::f16, 1, 32, ScaleLayout::linear, true}},
    {F::int4, true, {F::bf16, 1, 32}}};

// `rows`, or as few as the small-M kernel leaves to the others.
int64_t few_rows(const WeightSpec& w, int64_t rows) { return w.format == F::nvfp4 ? 66 : rows; }

TEST(MatmulSm90, EveryFormat) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& w : some(kSpecs, 3)) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{few_rows(w, 35), 40, 256}, {140, 130, 640}}) {
      const GpuCase c{w, kBf16, m, n, k, m == 140 ? F::bf16 : F::f32};
      ASSERT_NE(kernel_of(c, stream.device()).find("gemm_sm90_mixed:"), std::string::npos);
      expect_product(stream, c, 3);
    }
  }
  expect_product(stream, {kF16, kF16, 33, 24, 328, F::f16}, 4);
}

// Codes that are no number, of either sign and at every place of a lane, among all that are: each
// makes its row of W, and no other, NaN.
TEST(MatmulSm90, NotANumber) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t m = 35, n = 384, k = 256;
  for (const WeightSpec& spec : {WeightSpec{F::fp8_e4m3, true, {F::f32, 1, 0}},
                                 {F::fp8_e4m3, true, {F::f32, 128, 128}},
                                 {F::mxfp8, true, {F::ue8m0, 1, 32}},
                                 {F::fp8_e5m2, true, {F::f32, 1, 0}},
                                 {F::fp8_e5m2, true, {F::f32, 1, 64}}}) {
    const Tensor x = random_tensor({m, k}, F::bf16, 3, Data::normal);
    const Tensor w = random_weight(spec, n, k, 4).tensor;
    for (int64_t j = 0; j < n; j += 3) {
      w.data<uint8_t>()[j * k + j / 3 * 37 % k] = j % 2 == 0 ? 0x7f : 0xff;
    }
    const std::vector<float> y = to_floats(matmul_on(stream, x, w));
    for (int64_t i = 0; i < m * n; ++i) {
      ASSERT_EQ(std::isnan(y[static_cast<size_t>(i)]), i % n % 3 == 0) << label(spec) << " " << i;
    }
  }
}

// FP8 by FP8: scales of every kind, as given and rounded on the way.
TEST(MatmulSm90, Fp8) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const WeightSpec groups{F::fp8_e4m3, true, {F::f32, 1, 128}},
      row{F::fp8_e4m3, true, {F::f32, 1, 0}};
  const WeightSpec blocks{F::fp8_e4m3, true, {F::f32, 128, 128}};
  const WeightSpec tensor{F::fp8_e4m3, true, {F::f32, 0, 0}};
  const std::vector<std::pair<WeightSpec, WeightSpec>> operands = {
      {blocks, groups}, {row, row},       {tensor, tensor},
      {blocks, row},    {groups, groups}, {{F::fp8_e4m3, true, {F::bf16, 128, 128}}, groups}};
  for (const auto& [w, x] : some(operands)) {
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{19, 140, 400}, {140, 130, 1024}}) {
      const GpuCase c{w, x, m, n, k, F::f32};
      ASSERT_NE(kernel_of(c, stream.device()).find("in FP8"), std::string::npos);
      expect_product(stream, c, 5);
    }
  }
}

// Tiles with x as the rows of the MMA, which only so many outputs make worth while: one row of x
// beyond a tile, an odd tile of W; results by the copy engine and by threads.
TEST(MatmulSm90, Fp8ManyRows) {
  Stream stream(Device::simulator(Arch::sm_90a));
  configure(stream, {.severity = Options::Severity::strict, .throws = false});
  const WeightSpec row{F::fp8_e4m3, true, {F::f32, 1, 0}};
  for (const auto& [w, x, out] :
       {std::tuple{WeightSpec{F::fp8_e4m3, true, {F::bf16, 128, 128}},
                   WeightSpec{F::fp8_e4m3, true, {F::f32, 1, 128}}, F::bf16},
        {row, row, F::f32}}) {
    const GpuCase c{w, x, 257, 65 * 128 + 8, 144, out};
    const std::string kernel = kernel_of(c, stream.device());
    ASSERT_NE(kernel.find("tiles of 128 x 256 in FP8"), std::string::npos) << kernel;
    expect_product(stream, c, 5);
    EXPECT_TRUE(simulator_report(stream).clean()) << to_string(simulator_report(stream));
    if (kSanitized) break;
  }
}

// Rounded on the way is the same bits as rounded before.
TEST(MatmulSm90, QuantisedOnTheWay) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t m = 37, n = 24, k = 400;
  const Tensor w = random_weight({F::fp8_e4m3, true, {F::f32, 128, 128}}, n, k, 6).tensor;
  for (const F format : {F::bf16, F::f32}) {
    const Tensor x = random_tensor({m, k}, format, 4, Data::outliers);
    for (const char* name : {"fp8_row", "fp8_1x128"}) {
      SCOPED_TRACE(concat(name, " of ", halftone::name(format)));
      MatmulOptions plain, rounding;
      plain.out = rounding.out = F::f32;
      rounding.quantize_x = parse_quantization(name);
      const Tensor before = quantize(x, *rounding.quantize_x);
      EXPECT_EQ(to_floats(matmul_on(stream, x, w, rounding)),
                to_floats(matmul_on(stream, before, w, plain)));
    }
  }
}

// No race, no bank conflict, whatever the order; and the same bits. With split-K and
// without, results by TMA stores and by threads.
TEST(MatmulSm90, StrictUnderAdversarialSchedules) {
  constexpr uint64_t kSeeds = kSanitized ? 1 : 2;
  std::vector<std::pair<WeightSpec, WeightSpec>> operands;
  for (const WeightSpec& w : kSpecs) operands.push_back({w, kBf16});
  const WeightSpec groups{F::fp8_e4m3, true, {F::f32, 1, 128}};
  operands.push_back({{F::fp8_e4m3, true, {F::f32, 128, 128}}, groups});
  operands.push_back({groups, groups});
  operands.push_back({{F::int8, true, {F::f16, 1, 64}}, {F::int8, true, {F::f32, 1, 128}}});
  for (const auto& [spec, of_x] : some(operands)) {
    // Split-K of eight, each of nine stages of 128 bytes: every stage of the ring is used again.
    const int64_t parts = 8 * 9 * 128 * 8 / bits(spec.format);
    for (const auto& [m, n, k, out] :
         {std::tuple<int64_t, int64_t, int64_t, F>{few_rows(spec, 36), 40, parts, F::f32},
          {150, 130, 512, F::bf16}}) {
      const Tensor x = random_weight(of_x, m, k, 3).tensor;
      const Tensor w = random_weight(spec, n, k, 4).tensor;
      MatmulOptions options;
      options.out = out;
      std::vector<float> first;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        Stream stream(Device::simulator(Arch::sm_90a));
        configure(stream, {.severity = Options::Severity::strict,
                           .numerics = Options::Numerics::fast,
                           .schedule = Options::Schedule::adversarial,
                           .seed = seed,
                           .throws = false});
        const std::vector<float> y = to_floats(matmul_on(stream, x, w, options));
        const SimulatorReport report = simulator_report(stream);
        ASSERT_TRUE(report.clean()) << label(spec) << " seed " << seed << "\n" << to_string(report);
        EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal)
            << label(spec) << " " << m << "\n"
            << to_string(report);
        if (first.empty()) first = y;
        ASSERT_EQ(y, first) << "seed " << seed;
      }
    }
  }
}

// Tiles of 256 columns whose sums are in units of the last scale, which only so many outputs make
// worth while.
constexpr int64_t kManyRows = 257, kManyOutputs = 44 * 128 + 8;
void check_schedules(Stream& stream) {
  configure(stream, {.severity = Options::Severity::strict,
                     .numerics = Options::Numerics::fast,
                     .schedule = Options::Schedule::adversarial,
                     .throws = false});
}

// No race, no conflict of banks.
SimulatorReport expect_clean(const Stream& stream) {
  SimulatorReport report = simulator_report(stream);
  EXPECT_TRUE(report.clean()) << to_string(report);
  EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal) << to_string(report);
  return report;
}

// Scales of 32 elements whose rows have no whole fours of them, so that they begin at any two
// bytes.
TEST(MatmulSm90, HalfwordScales) {
  for (const WeightSpec& spec :
       {WeightSpec{F::mxfp4, true, {F::ue8m0, 1, 32}}, {F::mxfp8, true, {F::ue8m0, 1, 32}}}) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{35, 40, 64}, {70, 150, 320}, {140, 130, 704}}) {
      Stream stream(Device::simulator(Arch::sm_90a));
      check_schedules(stream);
      const GpuCase c{spec, kBf16, m, n, k, F::bf16};
      ASSERT_NE(kernel_of(c, stream.device()).find("tiles of 128"), std::string::npos);
      expect_product(stream, c, 3);
      expect_clean(stream);
    }
  }
}

// Intra-CTA split-K in tiles of 64 columns: more tiles than CTAs and an odd
// number of stages, so that the K groups swap parity from one tile to the next, and a single stage,
// of which the second pair has nothing.
TEST(MatmulSm90, IntraCtaSplitK) {
  constexpr int64_t kOutputs = 133 * 128 + 24;
  for (const auto& [spec, k] :
       {std::pair<WeightSpec, int64_t>{{F::fp8_e4m3, true, {F::f32, 1, 0}}, 128},
        {{F::fp8_e4m3, true, {F::f32, 128, 128}}, 384},
        {{F::mxfp8, true, {F::ue8m0, 1, 32}}, 128},
        {{F::int4, true, {F::bf16, 1, 128, ScaleLayout::linear, true}}, 768},
        {{F::int4, true, {F::f16, 1, 32}}, 736}}) {
    Stream stream(Device::simulator(Arch::sm_90a));
    check_schedules(stream);
    const GpuCase c{spec, kBf16, 20, kOutputs, k, F::bf16};
    const std::string kernel = kernel_of(c, stream.device());
    ASSERT_NE(kernel.find("tiles of 128 x 64"), std::string::npos) << kernel;
    expect_product(stream, c, 3);
    expect_clean(stream);
    if (kSanitized) break;
  }
}

TEST(MatmulSm90, ManyRowsWithScalesOfGroups) {
  for (const auto& [spec, k] :
       {std::pair<WeightSpec, int64_t>{{F::fp8_e5m2, true, {F::f32, 1, 64}}, 464},
        {{F::fp8_e4m3, true, {F::f32, 128, 128}}, 720},
        {{F::int8, true, {F::f16, 1, 128}}, 656},
        {{F::int8, true, {F::f32, 1, 32}}, 592},
        {{F::int4, true, {F::f16, 1, 32, ScaleLayout::linear, true}}, 1120},
        {{F::int4, true, {F::bf16, 1, 128, ScaleLayout::linear, true}}, 1152}}) {
    Stream stream(Device::simulator(Arch::sm_90a));
    check_schedules(stream);
    const int64_t depth = kSanitized ? 144 : k;
    const GpuCase c{spec, kBf16, kManyRows, kManyOutputs, depth, F::bf16};
    const std::string kernel = kernel_of(c, stream.device());
    ASSERT_NE(kernel.find("tiles of 128 x 256"), std::string::npos) << kernel;
    expect_product(stream, c, 3);
    expect_clean(stream);
    if (kSanitized) break;
  }
}

// Scales of all magnitudes and signs, and such as leave nothing: an interval of zeros or of what
// lies below the rest changes no sum, an infinite scale or NaN makes it no number.
TEST(MatmulSm90, ScalesOfAllMagnitudes) {
  if (kSanitized) GTEST_SKIP() << "as ManyRowsWithScalesOfGroups, but for time";
  const int64_t k = 384, blocks = (kManyOutputs + 127) / 128;
  const Tensor codes = Tensor::empty({kManyOutputs, k}, F::fp8_e4m3);
  for (int64_t i = 0; i < kManyOutputs * k; ++i) {
    codes.data<uint8_t>()[i] = encode_e4m3(static_cast<float>(1 + i % 3));
  }
  const float of_group[] = {0.0f,   1.0f,    -1.7f,    3e-39f,    1e-30f, -1.9e30f,
                            1e-15f, 3.3e15f, INFINITY, -INFINITY, NAN,    0x1.8p-126f};
  constexpr size_t kKinds = std::size(of_group);
  const Tensor scales = Tensor::empty({blocks, 3}, F::f32);
  for (int64_t i = 0; i < blocks * 3; ++i) {
    const auto of = static_cast<size_t>(i / 3), group = static_cast<size_t>(i % 3);
    scales.data<float>()[i] = of_group[(of + group * (1 + of / kKinds * 5)) % kKinds];
  }
  const Tensor w = codes.quantized({F::f32, 128, 128}, scales);
  Stream stream(Device::simulator(Arch::sm_90a));
  check_schedules(stream);
  MatmulOptions options;
  options.out = F::f32;
  // Of elements with one sign an infinite scale makes no NaN.
  const Tensor normal = random_tensor({kManyRows, k}, F::bf16, 3, Data::normal);
  const Tensor ones = Tensor::empty({kManyRows, k}, F::bf16);
  std::fill_n(ones.data<uint16_t>(), kManyRows * k, uint16_t{0x3f80});
  for (const Tensor& x : {normal, ones}) {
    const std::vector<float> y = to_floats(matmul_on(stream, x, w, options)), xs = to_floats(x);
    for (int64_t m = 0; m < kManyRows; m += 16) {
      for (int64_t n = 0; n < kManyOutputs; n += 5) {
        double sum = 0, magnitude = 0;
        for (int64_t l = 0; l < k; ++l) {
          const double product = static_cast<double>(xs[static_cast<size_t>(m * k + l)]) *
                                 static_cast<double>(1 + (n * k + l) % 3) *
                                 static_cast<double>(scales.data<float>()[n / 128 * 3 + l / 128]);
          sum += product, magnitude += std::abs(product);
        }
        const float value = y[static_cast<size_t>(m * kManyOutputs + n)];
        if (!std::isfinite(sum)) {
          ASSERT_FALSE(std::isfinite(value)) << m << " " << n;
          ASSERT_EQ(std::isnan(value), std::isnan(sum)) << m << " " << n;
        } else {
          ASSERT_NEAR(value, sum, one_chain_roundings(k) * 0x1p-24 * magnitude + 3 * k * 0x1p-126)
              << m << " " << n;
        }
      }
    }
  }
}

// A few tiles more than multiprocessors: tail-wave splitting; results by TMA
// stores and by threads. Halves are of the first rows of x and of the last, of which one has 16.
TEST(MatmulSm90, TailWaveSplitting) {
  const int64_t m = 400, n = 80 * 128 + 40;
  for (const auto& [spec, k, out] :
       {std::tuple<WeightSpec, int64_t, F>{kBf16, 72, F::f32},
        {kBf16, 328, F::bf16},
        {{F::int8, true, {F::f16, 1, 128}}, 656, F::bf16},
        {{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true}, 576, F::bf16}}) {
    Stream stream(Device::simulator(Arch::sm_90a));
    check_schedules(stream);
    const GpuCase c{spec, kBf16, m, n, k, out};
    const std::string kernel = kernel_of(c, stream.device());
    ASSERT_NE(kernel.find("tiles of 128 x 256, the last 30 halved"), std::string::npos) << kernel;
    expect_product(stream, c, 3);
    const SimulatorReport report = expect_clean(stream);
    // Of 162 tiles 132 have 256 columns, and 60 halves 128; K is whole stages of 128 bytes.
    const int64_t depth = 128 * 8 / bits(spec.format), steps = (k + depth - 1) / depth * depth;
    int64_t products = 0;
    for (const auto& count : report.counters.multiply_adds) {
      products += static_cast<int64_t>(count.count);
    }
    EXPECT_EQ(products, (132 * 256 + 60 * 128) * 128 * steps);
    if (kSanitized) break;
  }
}

// Matrices that share a launch, with biases and without; and such as do not, of no whole tiles.
TEST(MatmulSm90, HorizontallyFused) {
  const Device device = Device::simulator(Arch::sm_90a);
  for (const auto& [spec, m, k] :
       {std::tuple<WeightSpec, int64_t, int64_t>{kBf16, 19, 1024},
        {kBf16, 64, 192},
        {{F::fp8_e4m3, true, {F::f32, 128, 128}}, 40, 768},
        {{F::int4, true, {F::bf16, 1, 128, ScaleLayout::linear, true}}, 35, 768}}) {
    SCOPED_TRACE(concat(label(spec), ", m ", m));
    Stream stream(device);
    check_schedules(stream);
    const Tensor x = random_tensor({m, k}, F::bf16, 3).to(device);
    const SharedX shared(device, spec, x, {384, 128, 256}, {true, true, true});
    ASSERT_TRUE(shared.run_at_once(stream));
    shared.expect_bits_of_runs_apart(stream);  // the same split-K factor
    const SharedX ragged(device, spec, x, {384, 130, 256}, {true, true, true});
    EXPECT_FALSE(ragged.run_at_once(stream));
    expect_clean(stream);
    if (kSanitized) break;
  }
}

// As many clusters as fit; their blocks have unequal shares of K and of the rows of x.
TEST(MatmulSm90, UnevenSplitK) {
  if (kSanitized) GTEST_SKIP() << "as StrictUnderAdversarialSchedules, but for time";
  for (const auto& [parts, n] : {std::pair{5, 13 * 128 + 8}, {3, 27 * 128 + 8}}) {
    Stream stream(Device::simulator(Arch::sm_90a));
    configure(stream, {.severity = Options::Severity::strict,
                       .numerics = Options::Numerics::fast,
                       .schedule = Options::Schedule::adversarial,
                       .throws = false});
    const GpuCase c{kBf16, kBf16, 61, n, 2048, F::bf16};
    const std::string kernel = kernel_of(c, stream.device());
    ASSERT_NE(kernel.find(concat("split-K ", parts)), std::string::npos) << kernel;
    expect_product(stream, c, 3);
    EXPECT_TRUE(simulator_report(stream).clean()) << to_string(simulator_report(stream));
  }
}

}  // namespace
}  // namespace halftone::test
